#include "hfta/train/lane_loop.h"

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/log.h"
#include "hfta/program/random.h"

namespace hfta::train {
namespace {

std::string named(const std::string& who, std::int64_t lane, const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.starts_with(who) ? line : who + ": lane " + std::to_string(lane) + ": " + line;
}

// Errors of LibTorch and ours become one line that names the lane; a user's own exceptions pass as they are.
void with_names(const std::string& who, std::int64_t lane, const std::function<void(std::int64_t)>& task) {
  try {
    task(lane);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(named(who, lane, error.what()));
  } catch (const Unsupported& error) {
    throw Unsupported(named(who, lane, error.what()));
  } catch (const Error& error) {
    throw Error(named(who, lane, error.what()));
  } catch (const c10::Error& error) {
    throw Error(named(who, lane, error.what_without_backtrace()));
  }
}

// A single worker may use the process's default generator, which costs nothing per operator; several would mix their streams.
void run_lane(std::span<lanes::ArrayBase* const> arrays, std::int64_t lane, bool alone, const std::string& who,
              const std::function<void(std::int64_t)>& task) {
  auto& generator = arrays[0]->generator(lane);
  if (alone && generator.device().is_cpu()) {
    const base::DefaultGeneratorScope random(generator);
    with_names(who, lane, task);
  } else {
    const program::LaneRandom random(generator);
    with_names(who, lane, task);
  }
  for (auto* array : arrays)
    for (const auto& name : array->restore_rows(lane))
      base::log_once(base::LogLevel::Info, who + ": \"" + name + "\" was rebound by the function; its value is copied back into the array at each step");
}

// Making threads costs as much as a small step, so a thread that trains by itself keeps its workers.
base::Workers& kept_workers(std::int64_t lanes) {
  thread_local std::unique_ptr<base::Workers> workers;
  thread_local pid_t process = getpid();
  // After a fork the threads are the parent's: nothing can be joined here.
  if (process != getpid()) static_cast<void>(workers.release()), process = getpid();
  const auto cores = base::cores();
  const auto count = std::min(cores, lanes);
  const auto threads = static_cast<int>(cores / count);
  if (!workers || workers->count() != count || workers->intra_op_threads() != threads) workers = std::make_unique<base::Workers>(count, threads);
  return *workers;
}

// Runs lanes until one fails; the error of the lowest lane that failed is the one told, for all lanes run the same code.
class Lanes {
 public:
  explicit Lanes(std::int64_t lanes) : errors_(lanes) {}

  void run(std::int64_t lane, const std::function<void()>& task) {
    if (failed_) return;
    try {
      task();
    } catch (...) {
      errors_[lane] = std::current_exception();
      failed_ = true;
    }
  }
  void rethrow() const {
    for (const auto& error : errors_)
      if (error) std::rethrow_exception(error);
  }

 private:
  std::vector<std::exception_ptr> errors_;
  std::atomic<bool> failed_{false};
};

}  // namespace

void for_each_lane(std::span<lanes::ArrayBase* const> arrays, base::Workers* workers, const std::string& who,
                   const std::function<void(std::int64_t lane)>& task) {
  const auto count = arrays[0]->lanes();
  for (auto* array : arrays) array->settle();
  if (!workers) workers = &kept_workers(count);
  Lanes lanes(count);
  if (workers->count() == 1) {
    workers->over(count, [&](std::int64_t lane, std::int64_t) { lanes.run(lane, [&] { run_lane(arrays, lane, true, who, task); }); });
  } else {
    const at::ThreadLocalState caller;
    workers->over(count, [&](std::int64_t lane, std::int64_t) {
      const at::ThreadLocalStateGuard as_caller(caller);
      lanes.run(lane, [&] { run_lane(arrays, lane, false, who, task); });
    });
  }
  for (auto* array : arrays) array->settle();
  lanes.rethrow();
}

}  // namespace hfta::train
