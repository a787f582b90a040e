#include "hfta/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <set>

#include "hfta/base/error.h"

namespace hfta::base {
namespace {

struct Log {
  std::mutex mutex;
  std::set<std::string> seen;
  std::shared_ptr<spdlog::sinks::sink> console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
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
