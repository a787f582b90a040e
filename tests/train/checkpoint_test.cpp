#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <random>
#include <thread>

#include "hfta/lanes/archive.h"
#include "tests/train/trainer_setup.h"

namespace {

using namespace hfta::test;
using hfta::train::Callbacks;
using hfta::train::EpochReport;
using hfta::train::LaneState;
using hfta::train::Request;
using hfta::train::RunStatus;
using hfta::train::StepReport;
using hfta::train::TrainerOptions;

void expect_same_run(const Training& got, const Training& expected) {
  ASSERT_EQ(got.trainer.ids(), expected.trainer.ids());
  for (std::size_t id = 0; id < 4; ++id) {
    const auto &a = got.trainer.lanes()[id], &b = expected.trainer.lanes()[id];
    EXPECT_EQ(a.state, b.state) << id;
    EXPECT_EQ(a.reason, b.reason) << id;
    ASSERT_EQ(a.epochs.size(), b.epochs.size()) << id;
    for (std::size_t epoch = 0; epoch < a.epochs.size(); ++epoch)
      for (const auto& [name, value] : b.epochs[epoch])
        EXPECT_TRUE(a.epochs[epoch].at(name) == value || (std::isnan(value) && std::isnan(a.epochs[epoch].at(name)))) << id << " " << epoch << " " << name;
  }
  for (const auto id : expected.trainer.ids()) expect_same_bits(got.state(id), expected.state(id), "lane " + std::to_string(id));
}

TrainerOptions saving(const std::string& path, std::int64_t epochs) {
  TrainerOptions options;
  options.epochs = epochs;
  options.checkpoint = path;
  return options;
}
TrainerOptions saving(const Folder& folder, std::int64_t epochs) { return saving(folder.file("run/array.ckpt"), epochs); }

// A lane that fails, a lane that is pruned: the array is compacted twice on the way.
Callbacks eventful(Training& run) {
  Callbacks callbacks;
  callbacks.epoch = [&run](const EpochReport& report) {
    const torch::NoGradGuard no_grad;
    if (report.epoch == 1) run.trainer.stop_lane(2, "pruned");
    if (report.epoch == 2) run.array.module(run.trainer.ids()[0] == 0 ? 0 : 1)->parameters()[0].fill_(std::nan(""));
  };
  return callbacks;
}

// Contract 4, for every epoch at which training may stop.
TEST(CheckpointTest, ResumeEqualsNeverHavingStopped) {
  Training whole(Choice{.epochs = 6});
  whole.go(eventful(whole));
  EXPECT_EQ(whole.trainer.lanes()[0].state, LaneState::Failed);
  for (std::int64_t stop = 1; stop < 6; ++stop) {
    const Folder folder;
    Training first(saving(folder, 6));
    auto until = eventful(first);
    until.step = [&](const StepReport& report) { return report.epoch + 1 >= stop ? Request::EndAfterEpoch : Request::GoOn; };
    EXPECT_EQ(first.go(until), RunStatus::Interrupted);
    Training second(saving(folder, 6));
    second.trainer.resume(folder.file("run/array.ckpt"));
    EXPECT_EQ(second.trainer.epoch(), stop);
    EXPECT_EQ(second.go(eventful(second)), RunStatus::Finished);
    expect_same_run(second, whole);
  }
}

// Cases C6 and C2: a checkpoint before the first step; the rates of the checkpoint hold, not those of the constructor.
TEST(CheckpointTest, SavedBeforeTheFirstStepAndWithOtherRates) {
  const Folder folder;
  Training whole(Choice{.epochs = 2}), first(Choice{.epochs = 2}), second(Choice{.epochs = 2});
  for (auto* run : {&whole, &first}) run->adam.set("lr", hfta::optim::PerLane{std::vector<double>{0.1, 0.2, 0.3, 0.4}});
  first.trainer.save(folder.file("zero.ckpt"));
  second.trainer.resume(folder.file("zero.ckpt"));
  EXPECT_EQ(second.adam.get("lr", 2), 0.3);
  whole.go(), second.go();
  expect_same_run(second, whole);
}

TEST(CheckpointTest, SchedulesGoOnFromTheCheckpoint) {
  const auto run = [](std::int64_t stop) {
    const Folder folder;
    std::vector<double> rates;
    for (const bool resumed : {false, true}) {
      Training run(Choice{.epochs = 5});
      hfta::optim::Schedule decay(run.adam, hfta::optim::StepLR{.step_size = std::vector<double>{1, 2, 3, 4}, .gamma = 0.5});
      auto options = run.options;
      options.schedules = {hfta::train::scheduled(decay)};
      options.checkpoint = folder.file("a.ckpt");
      hfta::train::Trainer trainer({&run.array}, run.adam, hfta::lane_step(run.array, loss_of), options);
      if (resumed) trainer.resume(options.checkpoint);
      Callbacks callbacks;
      callbacks.step = [&](const StepReport& report) { return !resumed && report.epoch + 1 == stop ? Request::EndAfterEpoch : Request::GoOn; };
      if (trainer.run(run.training, &run.validation, callbacks) == RunStatus::Interrupted) continue;
      rates.clear();
      for (std::int64_t lane = 0; lane < 4; ++lane) rates.push_back(run.adam.get("lr", lane)), rates.push_back(run.state(lane)[0].sum().item<double>());
    }
    return rates;
  };
  EXPECT_EQ(run(2), run(5));
}

TEST(CheckpointTest, FinishedRunGoesOnWithMoreEpochs) {
  const Folder folder;
  Training whole(Choice{.epochs = 4}), first(saving(folder, 2)), second(saving(folder, 4));
  first.go();
  second.trainer.resume(folder.file("run/array.ckpt"));
  second.go();
  whole.go();
  expect_same_run(second, whole);
}

TEST(CheckpointTest, PlanIsTakenFromTheCheckpoint) {
  const Folder folder;
  Training first(saving(folder, 1));
  first.options.plan.reset();
  first.options.record = false;
  first.options.search = {.budget_seconds = 0.2, .repeats = 1};
  hfta::train::Trainer chooser({&first.array}, first.adam, hfta::lane_step(first.array, loss_of), first.options);
  chooser.run(first.training);
  Training second(saving(folder, 2));
  second.options.plan.reset();
  hfta::train::Trainer user({&second.array}, second.adam, hfta::lane_step(second.array, loss_of), second.options);
  user.resume(folder.file("run/array.ckpt"));
  EXPECT_EQ(user.plan(), chooser.plan());
  EXPECT_EQ(user.plan_reason(), chooser.plan_reason());
  std::vector<std::string> lines;
  Callbacks callbacks;
  callbacks.message = [&](const std::string& line) { lines.push_back(line); };
  user.run(second.training, nullptr, callbacks);
  EXPECT_TRUE(lines.empty()) << "nothing is timed again: " << lines[0];
}

/// Of a run that may be killed. One worker: each lane's bits then do not depend on what two threads meet in a process that has just begun.
TrainerOptions of_killed_run(const std::string& path) {
  auto options = saving(path, 6);
  options.plan = hfta::plan::Plan{.recorded = false};
  return options;
}

// What is killed: this program itself, since a fork of a process that has threads may hang. It is told by its environment where to train.
TEST(KilledRunTest, DISABLED_TrainsToTheEnd) {
  const std::filesystem::path folder = std::getenv("HFTA_TEST_RUN_FOLDER");
  Training run(of_killed_run((folder / "run/array.ckpt").string()));
  if (std::filesystem::exists(run.options.checkpoint)) run.trainer.resume(run.options.checkpoint);
  std::ofstream(folder / "begun") << "now";
  run.go();
  EXPECT_EQ(run.trainer.epoch(), 6);
}

pid_t train_in_another_process(const Folder& folder) {
  std::filesystem::remove(folder.path / "begun");
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("HFTA_TEST_RUN_FOLDER", folder.path.c_str(), 1);
  unsetenv("GTEST_OUTPUT");
  execl("/proc/self/exe", "train_test", "--gtest_also_run_disabled_tests", "--gtest_filter=KilledRunTest.*", "--gtest_brief=1", nullptr);
  _exit(99);
}

// Killed at a random moment, also while a checkpoint is written: the same final metrics.
TEST(CheckpointTest, KilledAtARandomMomentResumesToTheSameResult) {
  Training whole(of_killed_run(""));
  whole.go();
  std::mt19937 random(5);
  for (int round = 0; round < 2; ++round) {
    const Folder folder;
    int kills = 0, status = 0;
    for (bool done = false; !done;) {
      const pid_t child = train_in_another_process(folder);
      const auto has_ended = [&] {
        siginfo_t state{};
        return waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOHANG | WNOWAIT) == 0 && state.si_pid == child;
      };
      while (kills < 4 && !std::filesystem::exists(folder.path / "begun") && !has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (kills < 4) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100)), kill(child, SIGKILL), ++kills;
      waitpid(child, &status, 0);
      done = WIFEXITED(status);
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    Training last(of_killed_run(folder.file("run/array.ckpt")));
    last.trainer.resume(folder.file("run/array.ckpt"));
    EXPECT_EQ(last.trainer.epoch(), 6);
    expect_same_run(last, whole);
  }
}

TEST(CheckpointTest, FolderThatCannotBeWrittenIsToldBeforeTheFirstStep) {
  const Folder folder;
  std::ofstream(folder.file("run")) << "a file where the folder should be";
  Training run(saving(folder, 1));
  std::int64_t steps = 0;
  Callbacks callbacks;
  callbacks.step = [&](const StepReport&) { return ++steps, Request::GoOn; };
  EXPECT_EQ(error_of([&] { run.go(callbacks); }),
            "train::Trainer: expected to write checkpoints to \"" + folder.file("run/array.ckpt") + "\", got Not a directory");
  EXPECT_EQ(steps, 0);
}

TEST(CheckpointTest, FullDiskKeepsTheEarlierCheckpoint) {
  const Folder folder;
  const auto path = folder.file("run/array.ckpt");
  Training run(saving(folder, 1));
  run.go();
  std::filesystem::create_directory(folder.file("blocked"));
  EXPECT_THAT(error_of([&] { run.trainer.save("/dev/full/array.ckpt"); }), ::testing::StartsWith("lanes::save_archive: expected to write \"/dev/full/array.ckpt\", got "));
  EXPECT_THAT(error_of([&] { run.trainer.save(folder.file("blocked")); }), ::testing::HasSubstr("expected to write"));
  Training again(saving(folder, 1));
  again.trainer.resume(path);
  EXPECT_EQ(again.trainer.epoch(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path / "run"), {}), 1) << "no temporary file is left";
}

class WrongCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { Training(saving(folder_, 1)).go(); }

  // What resume says, and that nothing was changed.
  std::string resume(const std::string& path) {
    Training run(Choice{.epochs = 2});
    const auto before = run.state(1);
    const auto text = error_of([&] { run.trainer.resume(path); });
    expect_same_bits(run.state(1), before);
    EXPECT_EQ(run.trainer.epoch(), 0);
    return text;
  }
  std::string with(const std::function<void(c10::impl::GenericDict)>& change) {
    const auto value = hfta::lanes::load_archive(path_);
    change(value.toGenericDict());
    hfta::lanes::save_archive(folder_.file("changed.ckpt"), value);
    const auto text = resume(folder_.file("changed.ckpt")), folder = folder_.path.string();
    const auto at = text.find(folder);
    return at == std::string::npos ? text : text.substr(0, at) + "F" + text.substr(at + folder.size());
  }

  Folder folder_;
  std::string path_ = folder_.file("run/array.ckpt");
};

TEST_F(WrongCheckpointTest, MissingTruncatedOrOtherFilesAreTold) {
  EXPECT_EQ(resume(folder_.file("none.ckpt")), "lanes::load_archive: expected to read \"" + folder_.file("none.ckpt") + "\", got No such file or directory");
  const auto size = std::filesystem::file_size(path_);
  for (const auto part : {size - 1, size / 2, std::uintmax_t{10}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path_, part);
    EXPECT_EQ(resume(path_), "lanes::load_archive: expected an archive of torch.save, got a damaged, truncated or other file \"" + path_ + "\"") << part;
  }
  hfta::lanes::save_archive(path_, std::string("text"));
  EXPECT_EQ(resume(path_), "train::Trainer: " + path_ + ": expected a checkpoint, got another kind of file");
}

TEST_F(WrongCheckpointTest, AnotherFormatArrayOrOptimizerIsTold) {
  EXPECT_EQ(with([](auto d) { d.insert_or_assign("format", std::int64_t{2}); }), "train::Trainer: F/changed.ckpt: expected format 1, got 2");
  EXPECT_EQ(with([](auto d) { d.insert_or_assign("kind", std::string("lane")); }),
            "train::Trainer: F/changed.ckpt: expected a checkpoint of a training run, got another kind of file");
  EXPECT_EQ(with([](auto d) { static_cast<void>(d.erase("epoch")); }), "train::Trainer: F/changed.ckpt: expected the entry \"epoch\", got none");
  EXPECT_EQ(with([](auto d) { d.insert_or_assign("epoch", 1.5); }), "train::Trainer: F/changed.ckpt: expected an integer \"epoch\", got Double");
  EXPECT_EQ(with([](auto d) { d.insert_or_assign("optimizer", std::string("SGD")); }), "train::Trainer: F/changed.ckpt: expected Adam as optimizer, got SGD");
  EXPECT_EQ(with([](auto d) { d.at("seeds").toList().pop_back(); }), "train::Trainer: F/changed.ckpt: expected lanes of this array's seeds, got others");
  EXPECT_EQ(with([](auto d) { d.at("lanes").toList().pop_back(); }), "train::Trainer: F/changed.ckpt: expected 4 lanes, got 3");
  EXPECT_EQ(with([](auto d) { d.at("lanes").toList().set(0, std::int64_t{3}); }),
            "train::Trainer: F/changed.ckpt: expected a checkpoint of this format, got one with damaged entries");
  const auto parameters = [](auto d) { return c10::IValue(d.at("arrays").toList().get(0)).toGenericDict().at("parameters").toGenericDict(); };
  EXPECT_EQ(with([&](auto d) { parameters(d).insert_or_assign("scale", torch::zeros({4, 6})); }),
            "train::Trainer: F/changed.ckpt: expected \"scale\" as Float [4, 5], got Float [4, 6]");
  EXPECT_EQ(with([&](auto d) { static_cast<void>(parameters(d).erase("scale")); }), "train::Trainer: F/changed.ckpt: expected the tensor \"scale\", got none");
  EXPECT_EQ(with([&](auto d) { parameters(d).insert("more", torch::zeros({4})); }), "train::Trainer: F/changed.ckpt: expected 8 tensors, got 9");
}

}  // namespace
