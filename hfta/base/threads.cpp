#include "hfta/base/threads.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "hfta/base/error.h"

namespace hfta::base {
namespace {

// LibTorch sets a thread's count lazily at its first use; asking first makes the setting stay this thread's own.
int set_intra_op_threads(int threads) {
  const int before = at::get_num_threads();
  if (before != threads) at::set_num_threads(threads);
  return before;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

void rethrow(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::exception_ptr> failed;
  for (const auto& error : errors)
    if (error) failed.push_back(error);
  if (failed.empty()) return;
  if (failed.size() == 1) std::rethrow_exception(failed[0]);
  std::string text = text_of(failed[0]);
  for (std::size_t i = 1; i < failed.size(); ++i) text += '\n' + text_of(failed[i]);
  try {
    std::rethrow_exception(failed[0]);
  } catch (const InvalidArgument&) {
    throw InvalidArgument(text);
  } catch (const Unsupported&) {
    throw Unsupported(text);
  } catch (...) {
    throw Error(text);
  }
}

}  // namespace

IntraOpThreads::IntraOpThreads(int threads) : before_(set_intra_op_threads(threads)) {}
IntraOpThreads::~IntraOpThreads() { set_intra_op_threads(before_); }

struct Workers::State {
  std::int64_t count;
  int intra_op_threads;
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors;
  std::mutex mutex;
  std::condition_variable started, finished;
  const std::function<void(std::int64_t)>* task = nullptr;
  std::uint64_t round = 0;
  std::int64_t running = 0;
  bool stopping = false;

  void work(std::int64_t worker) {
    const IntraOpThreads threads_here(intra_op_threads);
    std::uint64_t seen = 0;
    for (;;) {
      std::unique_lock lock(mutex);
      started.wait(lock, [&] { return stopping || round != seen; });
      if (stopping) return;
      seen = round;
      lock.unlock();
      try {
        (*task)(worker);
      } catch (...) {
        errors[worker] = std::current_exception();
      }
      lock.lock();
      if (--running == 0) finished.notify_one();
    }
  }
};

Workers::Workers(std::int64_t count, int intra_op_threads) : state_(std::make_unique<State>()) {
  HFTA_CHECK(count >= 1, "base::Workers: expected at least 1 worker, got ", count);
  HFTA_CHECK(intra_op_threads >= 1, "base::Workers: expected at least 1 intra-op thread, got ", intra_op_threads);
  at::set_num_threads(at::get_num_threads());  // In a forked process this renews LibTorch's pool; of two threads at once one would find none.
  state_->count = count;
  state_->intra_op_threads = intra_op_threads;
  state_->errors.resize(count);
  for (std::int64_t worker = 0; count > 1 && worker < count; ++worker)
    state_->threads.emplace_back([this, worker] { state_->work(worker); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->started.notify_all();
  for (auto& thread : state_->threads) thread.join();
}

std::int64_t Workers::count() const { return state_->count; }
int Workers::intra_op_threads() const { return state_->intra_op_threads; }

void Workers::each(const std::function<void(std::int64_t)>& task) {
  if (state_->count == 1) {
    const IntraOpThreads threads_here(state_->intra_op_threads);
    return task(0);
  }
  std::unique_lock lock(state_->mutex);
  state_->errors.assign(state_->count, nullptr);
  state_->task = &task;
  state_->running = state_->count;
  ++state_->round;
  state_->started.notify_all();
  state_->finished.wait(lock, [&] { return state_->running == 0; });
  state_->task = nullptr;
  lock.unlock();
  rethrow(state_->errors);
}

void Workers::over(std::int64_t tasks, const std::function<void(std::int64_t, std::int64_t)>& task) {
  std::atomic<std::int64_t> next{0};
  each([&](std::int64_t worker) {
    for (std::int64_t index = next++; index < tasks; index = next++) task(index, worker);
  });
}

std::int64_t cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace hfta::base
