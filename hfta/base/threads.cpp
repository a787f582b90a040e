#include "hfta/base/threads.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "hfta/base/error.h"

extern "C" int omp_pause_resource_all(int kind) __attribute__((weak));

namespace hfta::base {
namespace {

// After its work an OpenMP thread looks for more, for ten milliseconds and longer with GNU's library, on a core that a worker may need: a few
// steps then take up to half as long again. The caller's threads end here; its next parallel region makes new ones. Costs nothing where there are none.
void end_openmp_threads() {
  constexpr int kSoft = 1;  // omp_pause_soft
  if (omp_pause_resource_all) omp_pause_resource_all(kSoft);
}

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

namespace {

// How long a thread looks for work, or for the others' end, before it sleeps. Waking one that sleeps takes 50 to 100 us, as long as a whole
// step of small models; a step that follows at once finds the threads awake.
constexpr std::chrono::microseconds kAwake{200};

// Tells the processor that this thread only looks, which leaves its core to a sibling.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Runs `is_done` again and again for a while; whether it came true.
template <class Condition>
bool soon(const Condition& is_done, std::chrono::microseconds time) {
  if (is_done()) return true;
  if (time.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_done()) return true;
      pause();
    }
    std::this_thread::yield();  // Another worker may have been put on this core.
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

// The caller is worker 0, threads are the others. A round's task and its count of running workers are written before `round`, whose
// change starts the threads; `running` at zero ends it.
struct Workers::State {
  std::int64_t count;
  int intra_op_threads;
  std::chrono::microseconds awake{};
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors;
  std::mutex mutex;
  std::condition_variable started, finished;
  const std::function<void(std::int64_t)>* task = nullptr;
  std::atomic<std::uint64_t> round = 0;
  std::atomic<std::int64_t> running = 0;
  std::atomic<bool> stopping = false;

  template <class Condition>
  void wait(std::condition_variable& changed, const Condition& is_done) {
    if (soon(is_done, awake)) return;
    std::unique_lock lock(mutex);
    changed.wait(lock, is_done);
  }

  // A change is made under the mutex, so that nobody falls asleep between looking and the notice.
  template <class Change>
  void tell(std::condition_variable& changed, const Change& change) {
    {
      const std::lock_guard lock(mutex);
      change();
    }
    changed.notify_all();
  }

  void run(std::int64_t worker) {
    try {
      (*task)(worker);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  }

  void work(std::int64_t worker) {
    const IntraOpThreads threads_here(intra_op_threads);
    for (std::uint64_t seen = 0;;) {
      wait(started, [&] { return stopping || round != seen; });
      if (stopping) return;
      seen = round;
      run(worker);
      if (running.fetch_sub(1) == 1) tell(finished, [] {});
    }
  }
};

Workers::Workers(std::int64_t count, int intra_op_threads) : state_(std::make_unique<State>()) {
  HFTA_CHECK(count >= 1, "base::Workers: expected at least 1 worker, got ", count);
  HFTA_CHECK(intra_op_threads >= 1, "base::Workers: expected at least 1 intra-op thread, got ", intra_op_threads);
  at::set_num_threads(at::get_num_threads());  // In a forked process this renews LibTorch's pool; of two threads at once one would find none.
  state_->count = count;
  state_->intra_op_threads = intra_op_threads;
  if (count <= cores()) state_->awake = kAwake;
  state_->errors.resize(count);
  for (std::int64_t worker = 1; worker < count; ++worker)
    state_->threads.emplace_back([this, worker] { state_->work(worker); });
}

Workers::~Workers() {
  state_->tell(state_->started, [&] { state_->stopping = true; });
  for (auto& thread : state_->threads) thread.join();
}

std::int64_t Workers::count() const { return state_->count; }
int Workers::intra_op_threads() const { return state_->intra_op_threads; }

void Workers::each(const std::function<void(std::int64_t)>& task) {
  auto& s = *state_;
  const IntraOpThreads threads_here(s.intra_op_threads);
  if (s.count == 1) return task(0);
  end_openmp_threads();
  s.errors.assign(s.count, nullptr);
  s.task = &task;
  s.running = s.count - 1;
  s.tell(s.started, [&] { ++s.round; });
  s.run(0);
  s.wait(s.finished, [&] { return s.running == 0; });
  rethrow(s.errors);
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
