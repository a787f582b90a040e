#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace hfta::base {

/// Sets the calling thread's intra-op thread count for a scope and puts the old one back.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  int before_;
};

/// The caller and threads that stay, each with its own intra-op thread count. The caller is worker 0. Threads stay awake for a fifth of a
/// millisecond after their work where the machine has a core for each; then they sleep. The caller's OpenMP threads end before several workers start.
class Workers {
 public:
  /// @param count workers, at least 1.  @param intra_op_threads of each worker, at least 1.
  Workers(std::int64_t count, int intra_op_threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::int64_t count() const;
  int intra_op_threads() const;

  /// Runs `task(worker)` once on every worker and waits for all.
  /// @throws the first worker's error; the messages of further failed workers are appended as lines.
  void each(const std::function<void(std::int64_t worker)>& task);

  /// Runs `task(index, worker)` for every index in `[0, tasks)`; a free worker takes the next index.
  void over(std::int64_t tasks, const std::function<void(std::int64_t index, std::int64_t worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Processor cores that this process may use.
std::int64_t cores();

}  // namespace hfta::base
