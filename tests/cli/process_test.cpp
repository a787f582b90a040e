#include <gmock/gmock.h>
#include <pty.h>
#include <sys/resource.h>

#include <random>

#include "tests/cli/command_support.h"

namespace hfta::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kLong = "trials = 4\nepochs = 40";

using InterruptTest = CommandTest;

TEST_F(InterruptTest, OnceEndsTheEpochAndTheSameCommandGoesOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto name = "s" + std::to_string(signal);
    const auto file = study_file(name, "trials = 4\nepochs = 5000");
    Child child({"sweep", file}, folder);
    ASSERT_TRUE(child.says("epoch 2/5000"));
    child.kill(signal);
    const auto outcome = child.wait();
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("stopping after this epoch"), HasSubstr("4 trials: 4 running"), EndsWith("interrupted: everything is saved; the same command goes on\n")));
    EXPECT_THAT(hfta({"status", file}).out, StartsWith("study " + name + ": 4 trials (4 running)"));
    EXPECT_TRUE(fs::exists(folder / name / "checkpoints" / "array-0.pt"));
  }
}

TEST_F(InterruptTest, InterruptedAndResumedEqualsNeverStopped) {
  const auto whole = study_file("whole", "name = \"n\"\n" + kLong), parts = study_file("parts", "name = \"n\"\n" + kLong);
  ASSERT_EQ(hfta({"sweep", whole}).code, 0);
  {
    Child child({"sweep", parts}, folder);
    ASSERT_TRUE(child.says("epoch 2/40"));
    child.kill(SIGINT);
    const auto code = child.wait().code;
    EXPECT_TRUE(code == 130 || code == 0) << code;
  }
  const auto resumed = hfta({"resume", parts});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(trials_of(parts), trials_of(whole));
  for (const char* weights : {"trial-0.pt", "trial-3.pt"}) EXPECT_EQ(bytes(folder / "whole" / "lanes" / weights), bytes(folder / "parts" / "lanes" / weights));
}

TEST_F(InterruptTest, TwiceStopsNow) {
  const auto file = study_file("s", "trials = 4\nepochs = 3", "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}");
  auto text = bytes(file);
  std::ofstream(file) << text.replace(text.find("examples = 200"), 14, "examples = 4000000");  // an epoch that takes long
  Child child({"sweep", file}, folder);
  ASSERT_TRUE(child.says("as asked"));
  child.kill(SIGINT);
  ASSERT_TRUE(child.says("stopping after this epoch"));
  child.kill(SIGINT);
  const auto outcome = child.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "\nhfta: stopped; the same command goes on from the last checkpoint\n") << "not the end of the epoch";
  EXPECT_THAT(hfta({"status", file}).out, StartsWith("study s: 4 trials (4 running)"));
}

using KillTest = CommandTest;

TEST_F(KillTest, WhatAKilledRunLeftIsRemoved) {
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto checkpoints = folder / "s" / "checkpoints";
  for (const char* left : {"array-0.pt", ".array-0.pt.7.0.tmp"}) std::ofstream(checkpoints / left) << "left between the last trial's end and this file's";
  std::ofstream(folder / "s" / "lanes" / ".trial-1.pt.7.0.tmp") << "half";
  ASSERT_EQ(hfta({"sweep", file, "--more", "1"}).code, 0);
  EXPECT_TRUE(fs::is_empty(checkpoints));
  EXPECT_FALSE(fs::exists(folder / "s" / "lanes" / ".trial-1.pt.7.0.tmp"));
  EXPECT_TRUE(fs::exists(folder / "s" / "lanes" / "trial-1.pt"));
}

TEST_F(KillTest, KilledAtAnyMomentAndResumedEqualsNeverKilled) {
  const auto whole = study_file("whole", "name = \"n\"\n" + kLong, "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}\noptimizer = [\"adam\", \"sgd\"]");
  const auto parts = study_file("parts", "name = \"n\"\n" + kLong, "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}\noptimizer = [\"adam\", \"sgd\"]");
  const auto start = std::chrono::steady_clock::now();
  Child alone({"sweep", whole}, folder);
  ASSERT_EQ(alone.wait().code, 0);
  const std::chrono::duration<double> lasts = std::chrono::steady_clock::now() - start;
  std::mt19937 random(7);
  int kills = 0;
  for (int i = 0; i < 6 || kills == 0; ++i) {
    if (kills == 0) fs::remove_all(folder / "parts");  // a run that ended before its kill proves nothing
    Child child({"sweep", parts}, folder);
    std::this_thread::sleep_for(lasts * std::uniform_real_distribution<>(0.1, 0.8)(random) / (kills == 0 ? i + 1 : 1));
    child.kill(SIGKILL);
    kills += child.wait().code == 137;
  }
  const auto last = hfta({"sweep", parts});
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(trials_of(parts), trials_of(whole));
  for (int trial = 0; trial < 4; ++trial) {
    const auto weights = "trial-" + std::to_string(trial) + ".pt";
    EXPECT_EQ(bytes(folder / "whole" / "lanes" / weights), bytes(folder / "parts" / "lanes" / weights)) << weights;
  }
}

TEST_F(KillTest, ResumeTellsTheEpoch) {  // case T22
  const auto file = study_file("s", "trials = 2\nepochs = 5000", "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}", "checkpoint_every = 2\n");
  {
    Child child({"sweep", file}, folder);
    ASSERT_TRUE(child.says("epoch 3/5000"));
    child.kill(SIGKILL);
    child.wait();
  }
  Child child({"resume", file}, folder);
  ASSERT_TRUE(child.says("resumed at epoch "));
  ASSERT_TRUE(child.says("/5000"));  // the line is whole
  child.kill(SIGKILL);
  const auto outcome = child.wait();
  const auto at = outcome.out.find("resumed at epoch ") + 17;
  EXPECT_EQ(std::stoi(outcome.out.substr(at)) % 2, 0);
  EXPECT_GT(std::stoi(outcome.out.substr(at)), 0);
}

using ProcessTest = CommandTest;

TEST_F(ProcessTest, SecondProcessOnAStudyIsRefused) {
  const auto file = study_file("s", "trials = 2\nepochs = 5000");
  Child child({"sweep", file}, folder);
  ASSERT_TRUE(child.says("epoch 1/5000"));
  const auto second = hfta({"sweep", file});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, AllOf(StartsWith("hfta: "), HasSubstr("process ")));
  EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1);
  EXPECT_EQ(hfta({"status", file}).code, 0);
}

TEST_F(ProcessTest, FullDiskIsOneLineAndEarlierResultsStay) {
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto before = trials_of(file);
  // Files may not grow: what is there stays, what is new has no room.
  Child child({"sweep", file, "--more", "2"}, folder, [] {
    const rlimit none{100, 100};
    setrlimit(RLIMIT_FSIZE, &none);
  });
  const auto outcome = child.wait();
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  const auto after = trials_of(file);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i]);
  EXPECT_EQ(hfta({"sweep", file, "--more", "2"}).code, 0);
}

/// What a terminal of this size gets from the command.
std::string on_terminal(const std::vector<std::string>& arguments, unsigned short width, unsigned short height, int signals = 0) {
  winsize size{.ws_row = height, .ws_col = width, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    std::vector<const char*> argv{HFTA_COMMAND};
    for (const auto& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back(nullptr);
    execv(HFTA_COMMAND, const_cast<char**>(argv.data()));
    _exit(98);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
    if (signals > 0 && text.find("running") != std::string::npos) kill(pid, SIGINT), --signals;
  }
  waitpid(pid, nullptr, 0);
  close(terminal);
  return text;
}

/// Text without escape sequences.
std::string visible(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\033') {
      result += text[i];
      continue;
    }
    while (i + 1 < text.size() && !std::isalpha(static_cast<unsigned char>(text[++i]))) {}
  }
  return result;
}

using TerminalTest = CommandTest;

TEST_F(TerminalTest, ShowsALiveTableThatFitsAndGivesTheCursorBack) {
  const auto file = study_file("s", "trials = 4\nepochs = 20");
  const auto text = on_terminal({"sweep", file}, 60, 20);
  EXPECT_THAT(text, AllOf(HasSubstr("\033[?25l"), HasSubstr("\033[?25h"), HasSubstr("model-steps/s"), HasSubstr("trial  state")));
  EXPECT_GT(text.rfind("\033[?25h"), text.rfind("\033[?25l"));
  EXPECT_THAT(visible(text), HasSubstr("best: trial "));
  // Lines of the table, not those of the summary.
  std::istringstream lines(visible(text.substr(0, text.rfind("\033[?25h"))));
  for (std::string line; std::getline(lines, line);) {
    std::erase(line, '\r');
    if (line.find("trials 0-3: ") == std::string::npos) {
      EXPECT_LE(line.size(), 60u) << line;
    }
  }
}

TEST_F(TerminalTest, InterruptGivesTheCursorBack) {
  const auto file = study_file("s", "trials = 4\nepochs = 5000");
  for (const int signals : {1, 2}) {
    const auto text = on_terminal({"sweep", file}, 80, 20, signals);
    EXPECT_GT(text.rfind("\033[?25h"), text.rfind("\033[?25l"));
  }
}

}  // namespace
}  // namespace hfta::cli::test
