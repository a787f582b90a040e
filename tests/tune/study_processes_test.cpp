#include <csignal>
#include <memory>
#include <set>
#include <thread>

#include "hfta/base/error.h"
#include "hfta/tune/study.h"
#include "study_support.h"

namespace hfta::tune {
namespace study_processes_test {

using StudyProcessesTest = StudyFolder;

Space space() { return Space({{"x", uniform(0, 1)}}); }

std::string work(const std::string& path, int trials) {
  auto study = Study::create(path, {.patience = std::chrono::minutes(10)});  // many writers on a slow disk wait long for their turn
  RandomSampler sampler;
  for (int i = 0; i < trials; ++i)
    for (const auto& trial : study.ask(space(), sampler, 1)) {
      study.report(trial.number, 0, 0.5);
      study.finish(trial.number, TrialState::Complete, {find(trial.parameters, "x")->internal});
    }
  return "done";
}

void expect_complete(const std::vector<Trial>& trials, std::size_t count) {
  ASSERT_EQ(trials.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(trials[i].number, static_cast<std::int64_t>(i));
    EXPECT_EQ(trials[i].state, TrialState::Complete);
  }
}

// Case T1.
TEST_F(StudyProcessesTest, ThirtyTwoProcessesShareAStudy) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 32; ++i) children.push_back(std::make_unique<Child>([this] { return work(path(), 20); }));
  for (auto& child : children) EXPECT_EQ(child->wait(), "done");
  const auto trials = Study::read(path()).trials();
  expect_complete(trials, 640);
  std::set<double> values;
  for (const auto& trial : trials) values.insert(trial.values.at(0));
  EXPECT_EQ(values.size(), 640U);  // no two processes drew for one trial number
}

TEST_F(StudyProcessesTest, OptunaWritesAtTheSameTime) {
  Study::create(path());
  Child ours([this] { return work(path(), 60); });
  optuna("work " + path() + " hfta 10");
  EXPECT_EQ(ours.wait(), "done");
  expect_complete(Study::read(path()).trials(), 70);
}

TEST_F(StudyProcessesTest, ThreadsShareAStudy) {
  auto study = Study::create(path());
  RandomSampler sampler;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i)
        for (const auto& trial : study.ask(space(), sampler, 1)) study.finish(trial.number, TrialState::Complete, {1.0});
    });
  for (auto& thread : threads) thread.join();
  expect_complete(study.trials(), 40);
}

// Case T3.
TEST_F(StudyProcessesTest, EachWaitingTrialIsBegunOnce) {
  {
    auto study = Study::create(path());
    for (int i = 0; i < 10; ++i) study.add({{"x", uniform(0, 1), i / 10.0}}, TrialState::Waiting);
  }
  const auto begin = [this] {
    auto study = Study::open(path());
    RandomSampler sampler;
    std::string begun;
    for (int i = 0; i < 5; ++i) begun += std::to_string(study.ask(space(), sampler, 1)[0].number) + " ";
    return begun;
  };
  Child one(begin), two(begin);
  std::istringstream numbers(one.wait() + two.wait());
  std::multiset<int> begun;
  for (int n; numbers >> n;) begun.insert(n);
  EXPECT_EQ(begun, (std::multiset<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(StudyProcessesTest, ASecondProcessIsRefusedWhileTheFirstLives) {
  const auto refused = [&](const std::string& by) { return "tune::StudyLock: expected \"" + path() + "\" to be free, got it in use by " + by; };
  const auto try_lock = [this]() -> std::string {
    const StudyLock lock(path());
    return "locked";
  };
  {
    const StudyLock lock(path());
    EXPECT_EQ(Child(try_lock).wait(), refused(this_process()));
    EXPECT_EQ(message_of<Error>(try_lock), refused(this_process()));  // another object of one process is another user
    EXPECT_TRUE(std::filesystem::exists(path() + ".lock"));
  }
  EXPECT_FALSE(std::filesystem::exists(path() + ".lock"));
  EXPECT_EQ(Child(try_lock).wait(), "locked");
}

TEST_F(StudyProcessesTest, ALinkToTheStudyHasTheSameLock) {
  Study::create(path());
  std::filesystem::create_symlink(path(), path("link.db"));
  const StudyLock lock(path("link.db"));
  EXPECT_EQ(lock.study(), std::filesystem::canonical(path()).string());
  EXPECT_THROW(StudyLock{path()}, Error);
}

// Case T6: a sweep is killed in the middle of its trials.
class KilledSweepTest : public StudyFolder {
 protected:
  KilledSweepTest() {
    Child sweep([this]() -> std::string {
      const StudyLock lock(path());
      auto study = Study::create(path());
      RandomSampler sampler;
      const auto trials = study.ask(space(), sampler, 1, 4);
      study.finish(trials[0].number, TrialState::Complete, {1.0});
      study.report(trials[1].number, 2, 0.5);
      study.report(trials[2].number, 0, 0.5);
      raise(SIGKILL);
      return "survived";
    });
    EXPECT_EQ(sweep.wait(), "");
    EXPECT_TRUE(WIFSIGNALED(sweep.status()));
  }
};

TEST_F(KilledSweepTest, IsReclaimed) {
  const StudyLock lock(path());  // the kernel gave it back
  auto study = Study::open(path());
  const auto running = study.trials();
  for (const auto i : {1U, 2U, 3U}) EXPECT_EQ(running[i].state, TrialState::Running);
  const auto continued = study.reclaim(lock, space(), [](const Trial& trial) {
    return trial.number == 1 ? Reclaim::Continue : trial.number == 2 ? Reclaim::Requeue : Reclaim::Fail;
  });
  ASSERT_EQ(continued.size(), 1U);
  EXPECT_EQ(continued[0].number, 1);
  EXPECT_EQ(continued[0].parameters, running[1].parameters);
  EXPECT_EQ(continued[0].intermediate, running[1].intermediate);
  const auto trials = study.trials();
  EXPECT_EQ(trials[0].state, TrialState::Complete);
  EXPECT_EQ(trials[1].state, TrialState::Running);
  EXPECT_EQ(trials[1].user_attributes.at("hfta:reclaimed"), "1");
  EXPECT_EQ(trials[2].state, TrialState::Waiting);
  EXPECT_TRUE(trials[2].intermediate.empty());
  EXPECT_EQ(trials[3].state, TrialState::Fail);
  EXPECT_EQ(trials[3].user_attributes.at("hfta:reason"), "\"the process that ran it was killed\"");
  // What this process runs now is not reclaimed again; what waits is begun anew as it was.
  EXPECT_TRUE(study.reclaim(lock, space(), [](const Trial&) { return Reclaim::Continue; }).empty());
  RandomSampler sampler;
  const auto begun = study.ask(space(), sampler, 1);
  EXPECT_EQ(begun[0].number, 2);
  EXPECT_EQ(begun[0].parameters, running[2].parameters);
  study.report(1, 3, 0.25);
  EXPECT_EQ(study.finish(1, TrialState::Complete, {0.25}), TrialState::Complete);
}

TEST_F(KilledSweepTest, ATrialThatWaitsAgainMayGoToAnyone) {
  const StudyLock lock(path());
  auto study = Study::open(path());
  study.reclaim(lock, space(), [](const Trial&) { return Reclaim::Requeue; });
  EXPECT_FALSE(study.trial(1).user_attributes.contains("hfta:owner"));
}

// Each call is whole or has not been, whenever the kill comes.
TEST_F(StudyProcessesTest, AKillAtAnyMomentLeavesAWholeStudy) {
  for (int round = 0; round < 12; ++round) {
    Child sweep([this] { return work(path(), 100'000); });
    while (!std::filesystem::exists(path())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 7));
    kill(sweep.id(), SIGKILL);
    sweep.wait();
    auto study = Study::create(path());
    std::size_t running = 0;
    for (const auto& trial : study.trials()) {
      EXPECT_EQ(trial.parameters.size(), 1U);
      EXPECT_EQ(trial.values.size(), trial.state == TrialState::Complete ? 1U : 0U);
      EXPECT_TRUE(trial.state != TrialState::Complete || trial.intermediate.size() == 1);
      running += trial.state == TrialState::Running;
    }
    EXPECT_LE(running, 1U);
    study.reclaim(StudyLock(path()), space(), [](const Trial&) { return Reclaim::Fail; });
  }
}

TEST_F(KilledSweepTest, TrialsOutsideOfANewSpaceFail) {
  const StudyLock lock(path());
  auto study = Study::open(path());
  EXPECT_TRUE(study.reclaim(lock, Space({{"x", uniform(5, 6)}}), [](const Trial&) { return Reclaim::Continue; }).empty());
  for (const auto i : {1, 2, 3}) {
    EXPECT_EQ(study.trial(i).state, TrialState::Fail);
    EXPECT_EQ(study.trial(i).user_attributes.at("hfta:reason"), "\"its parameters lie outside of the space\"");
  }
}

TEST_F(KilledSweepTest, IsReclaimedOnlyWithItsOwnLock) {
  const StudyLock lock(path("other.db"));
  auto study = Study::open(path());
  EXPECT_EQ(message_of<InvalidArgument>([&] { study.reclaim(lock, space(), [](const Trial&) { return Reclaim::Fail; }); }),
            "tune::Study: expected the lock of \"" + path() + "\", got that of \"" + lock.study() + "\"");
}

}  // namespace study_processes_test
}  // namespace hfta::tune
