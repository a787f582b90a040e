#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hfta/cli/app.h"

namespace hfta::cli::test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Outcome {
  int code;
  std::string out, err;
};

/// Runs the command in this process.
inline Outcome hfta(std::vector<std::string> arguments) {
  std::vector<const char*> argv{"hfta"};
  for (const auto& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  std::ostringstream out, err;
  const int code = run(static_cast<int>(arguments.size()) + 1, argv.data(), {out, err});
  return {code, out.str(), err.str()};
}

/// A command in a process of its own, its output in files.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const fs::path& folder, const std::function<void()>& prepare = {}) : out_(folder / "out.txt"), err_(folder / "err.txt") {
    std::vector<const char*> argv{HFTA_COMMAND};
    for (const auto& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back(nullptr);
    fs::remove(out_);  // an earlier child's words are not this one's
    fs::remove(err_);
    pid_ = fork();
    if (pid_ != 0) return;
    if (!freopen(out_.c_str(), "w", stdout) || !freopen(err_.c_str(), "w", stderr)) _exit(99);
    if (prepare) prepare();
    execv(HFTA_COMMAND, const_cast<char**>(argv.data()));
    _exit(98);
  }
  ~Child() {
    if (pid_ > 0) kill(SIGKILL), wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill(int signal) const { ::kill(pid_, signal); }
  /// Waits for the end. A process that a signal ended has the code 128 + signal.
  Outcome wait() {
    int state = 0;
    waitpid(pid_, &state, 0);
    pid_ = -1;
    return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), text(out_), text(err_)};
  }
  /// Waits until the output has this text. @returns whether it came before the process ended.
  bool says(const std::string& what) const {
    for (bool ended = false;;) {
      if (text(out_).find(what) != std::string::npos || text(err_).find(what) != std::string::npos) return true;
      if (ended) return false;
      siginfo_t state{};
      ended = waitid(P_PID, static_cast<id_t>(pid_), &state, WEXITED | WNOHANG | WNOWAIT) != 0 || state.si_pid == pid_;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  static std::string text(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  fs::path out_, err_;
  pid_t pid_ = -1;
};

/// A folder of its own for a test, with a study file whose plan is fixed and whose lowerings are not timed: results are the same bit for bit.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / ("hfta_" + std::string(info->test_suite_name()) + "_" + info->name() + "_" + std::to_string(getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override {
    if (!HasFailure()) fs::remove_all(folder);
  }

  /// Writes `<name>.toml` with the run folder `<name>`; `study` and `rest` are lines of their own.
  std::string study_file(const std::string& name, const std::string& study = "trials = 4\nepochs = 2", const std::string& space = "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}",
                         const std::string& rest = "") {
    const auto path = folder / (name + ".toml");
    std::ofstream(path) << "[study]\nseed = 3\n" << study << "\n[data]\nkind = \"synthetic\"\nexamples = 200\nbatch_size = 20\n[model]\nname = \"mlp\"\nhidden = [8]\n[space]\n" << space
                        << "\n[plan]\nwidth = 2\nworkers = 1\nlowerings = \"first\"\n[output]\nfolder = \"" << (folder / name).string() << "\"\n" << rest;
    return path.string();
  }
  /// The trials as `hfta trials -f json` gives them, without the paths of their weights.
  static Json trials_of(const std::string& study) {
    const auto outcome = hfta({"trials", study, "-f", "json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    auto json = Json::parse(outcome.out);
    for (auto& trial : json) trial.erase("weights");
    return json;
  }
  static std::string bytes(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder;
};

}  // namespace hfta::cli::test
