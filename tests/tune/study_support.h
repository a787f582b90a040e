#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace hfta::tune {

/// A folder that goes with the test.
class StudyFolder : public ::testing::Test {
 protected:
  StudyFolder() {
    auto name = (std::filesystem::temp_directory_path() / "hfta-study-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~StudyFolder() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "s.db") const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

/// What the command prints; a command that fails fails the test with what it said.
inline std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const auto size = fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), size);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

/// Runs a command of optuna_side.py.
inline std::string optuna(const std::string& arguments) { return output_of(std::string(HFTA_PYTHON) + " -W ignore " + HFTA_OPTUNA_SIDE + " " + arguments); }

/// What Optuna reads from the study.
inline nlohmann::json optuna_reads(const std::string& path, const std::string& name) {
  return nlohmann::json::parse(optuna("show " + path + " " + name), nullptr, false);
}

/// Runs the work in another process that ends with the text as its last words. @returns what it said.
class Child {
 public:
  explicit Child(const std::function<std::string()>& work) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    id_ = fork();
    if (id_ == 0) {
      std::string words;
      try {
        words = work();
      } catch (const std::exception& e) {
        words = e.what();
      }
      const auto written = write(ends[1], words.data(), words.size());
      _exit(written == static_cast<ssize_t>(words.size()) ? 0 : 1);
    }
    close(ends[1]);
    words_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { wait(); }

  pid_t id() const { return id_; }
  std::string wait() {
    if (words_ < 0) return {};
    std::string text;
    std::array<char, 1024> part{};
    for (ssize_t size; (size = read(words_, part.data(), part.size())) > 0;) text.append(part.data(), static_cast<std::size_t>(size));
    close(words_);
    words_ = -1;
    waitpid(id_, &status_, 0);
    return text;
  }
  int status() const { return status_; }

 private:
  pid_t id_ = 0;
  int words_ = -1;
  int status_ = 0;
};

/// The message of what the call throws.
template <typename Exception>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace hfta::tune
