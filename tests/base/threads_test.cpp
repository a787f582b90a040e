#include "hfta/base/threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "hfta/base/error.h"
#include "hfta/base/parallel.h"

namespace {

using hfta::base::IntraOpThreads;
using hfta::base::Workers;

TEST(IntraOpThreadsTest, CountIsPutBack) {
  const int before = at::get_num_threads();
  {
    const IntraOpThreads scope(before + 1);
    EXPECT_EQ(at::get_num_threads(), before + 1);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(WorkersTest, EveryIndexRunsOnce) {
  Workers workers(3, 1);
  std::vector<std::atomic<int>> seen(101);
  for (int round = 0; round < 20; ++round) workers.over(101, [&](std::int64_t i, std::int64_t) { ++seen[i]; });
  for (const auto& count : seen) EXPECT_EQ(count, 20);
}

TEST(WorkersTest, EachWorkerKeepsItsIntraOpThreads) {
  const int before = at::get_num_threads();
  Workers workers(2, 1);
  std::atomic<int> wrong{0};
  for (int round = 0; round < 50; ++round) workers.each([&](std::int64_t) { wrong += at::get_num_threads() != 1; });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(at::get_num_threads(), before);
}

/// By number. A thread that has ended is listed for a moment, so only what is new tells something.
std::set<std::string> threads_of_process() {
  std::set<std::string> threads;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) threads.insert(thread.path().filename());
  return threads;
}

std::set<std::string> without(std::set<std::string> threads, const std::set<std::string>& others) {
  for (const auto& other : others) threads.erase(other);
  return threads;
}

/// Such threads look for work long after theirs.
TEST(WorkersTest, OpenMPThreadsOfTheCallerEndBeforeWorkersStart) {
  Workers workers(2, 1);
  const auto before = threads_of_process();
  const auto numbers = at::zeros({1 << 20});
  const auto run_in_parallel = [&] {
    const IntraOpThreads two(2);
    numbers.add_(1);
  };
  run_in_parallel();
  if (without(threads_of_process(), before).empty()) GTEST_SKIP() << "LibTorch's threads are not OpenMP's here";
  bool ended = false;
  for (int tries = 0; tries < 1000 && !ended; ++tries) {
    workers.each([](std::int64_t) {});
    ended = without(threads_of_process(), before).empty();
  }
  EXPECT_TRUE(ended);
  run_in_parallel();
  EXPECT_EQ(numbers.sum().item<float>(), 2 << 20);
}

#if defined(__GNUC__) && !defined(__clang__)

/// The threads that ran parts of a range of 64, each index once; their number.
std::size_t threads_of_range(std::int64_t grain = 1) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> seen(64);
  hfta::base::parallel_for(0, 64, grain, [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) ++seen[i];
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen, std::vector<int>(64, 1));
  return threads.size();
}

TEST(ParallelForTest, RunsOnTheCallersIntraOpThreads) {
  for (const int threads : {1, 2, 3}) {
    const IntraOpThreads scope(threads);
    EXPECT_EQ(threads_of_range(), static_cast<std::size_t>(threads));
    EXPECT_EQ(threads_of_range(64), 1U) << "too little for two";
  }
}

TEST(ParallelForTest, WorkersOfOneThreadStartNone) {
  for (const int threads : {1, 2}) {
    Workers workers(2, threads);
    workers.each([](std::int64_t) {});
    const auto before = threads_of_process();
    std::atomic<std::size_t> wrong{0};
    workers.each([&](std::int64_t) { wrong += threads_of_range() != static_cast<std::size_t>(threads); });
    EXPECT_EQ(wrong, 0U);
    EXPECT_TRUE(threads > 1 || without(threads_of_process(), before).empty());
  }
}

TEST(ParallelForTest, PartsInsidePartsRunWhereTheyAre) {
  const IntraOpThreads two(2);
  std::atomic<int> elsewhere{0};
  hfta::base::parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    const auto here = std::this_thread::get_id();
    hfta::base::parallel_for(0, 64, 1, [&](std::int64_t, std::int64_t) { elsewhere += std::this_thread::get_id() != here; });
  });
  EXPECT_EQ(elsewhere, 0);
}

#endif

TEST(ParallelForTest, AnErrorOfAPartReachesTheCaller) {
  const IntraOpThreads two(2);
  for (const std::int64_t bad : {0, 63})
    EXPECT_THROW(hfta::base::parallel_for(0, 64, 1, [&](std::int64_t first, std::int64_t last) {
                   if (first <= bad && bad < last) throw hfta::InvalidArgument("part");
                 }),
                 hfta::InvalidArgument);
}

TEST(WorkersTest, ErrorsOfAllWorkersAreTold) {
  Workers workers(2, 1);
  try {
    workers.each([](std::int64_t worker) { throw hfta::InvalidArgument("worker " + std::to_string(worker) + " failed"); });
    FAIL() << "nothing thrown";
  } catch (const hfta::InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "worker 0 failed\nworker 1 failed");
  }
  int ran = 0;
  workers.over(1, [&](std::int64_t, std::int64_t) { ++ran; });
  EXPECT_EQ(ran, 1) << "the workers still work after an error";
}

}  // namespace
