#include "hfta/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "hfta/base/error.h"

namespace hfta::base {
namespace {

/// Standard error, unless a function takes the lines.
class ConsoleSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void write_to(std::function<void(std::string_view)> write) {
    const std::lock_guard lock(mutex_);
    write_ = std::move(write);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::string_view line(text.data(), text.size());
    if (!write_) std::fwrite(line.data(), 1, line.size(), stderr);
    else write_(line.substr(0, line.find_last_not_of('\n') + 1));
  }
  void flush_() override { std::fflush(stderr); }

 private:
  std::function<void(std::string_view)> write_;
};

struct Log {
  std::mutex mutex;
  std::set<std::string> seen;
  std::shared_ptr<ConsoleSink> console = std::make_shared<ConsoleSink>();
  spdlog::logger logger{"hfta", console};
  Log() {
    console->set_pattern("hfta: %v");
    logger.set_level(spdlog::level::info);
    logger.flush_on(spdlog::level::info);
  }
};

Log& the_log() {
  static Log* log = new Log;  // outlives every static that may still log at exit
  return *log;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::Debug: return spdlog::level::debug;
    case LogLevel::Info: return spdlog::level::info;
    case LogLevel::Warning: return spdlog::level::warn;
    case LogLevel::Error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log(LogLevel level, std::string_view line) {
  auto& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.logger.log(level_of(level), "{}", line);
}

void log_once(LogLevel level, const std::string& line) {
  {
    auto& log = the_log();
    const std::lock_guard lock(log.mutex);
    if (!log.seen.insert(line).second) return;
  }
  log(level, line);
}

void set_log_level(LogLevel level) { the_log().logger.set_level(level_of(level)); }

void set_log_console(std::function<void(std::string_view)> write) { the_log().console->write_to(std::move(write)); }

void set_log_file(const std::string& path) {
  auto& log = the_log();
  const std::lock_guard lock(log.mutex);
  std::vector<spdlog::sink_ptr> sinks{log.console};
  if (!path.empty()) try {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
      file->set_pattern("%Y-%m-%d %H:%M:%S %l %v");
      sinks.push_back(std::move(file));
    } catch (const spdlog::spdlog_ex& e) {
      throw Error(message("base::log: expected a writable file, got \"", path, "\" (", e.what(), ")"));
    }
  log.logger.sinks() = std::move(sinks);
}

}  // namespace hfta::base
