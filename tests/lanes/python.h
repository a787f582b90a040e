#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hfta::test {

/// A folder of this test's own that is gone afterwards.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("hfta-" + std::to_string(getpid()) + "-" + std::to_string(count()++))) { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  static int& count() {
    static int value = 0;
    return value;
  }
  std::filesystem::path path_;
};

/// The Python that has PyTorch, empty where the build found none.
inline std::string python() {
#ifdef HFTA_TEST_PYTHON
  return HFTA_TEST_PYTHON;
#else
  return {};
#endif
}

/// Runs a Python program in a folder. @returns what it printed, errors too.
inline ::testing::AssertionResult runs_python(const Folder& folder, const std::string& program) {
  std::ofstream(folder / "program.py") << program;
  const auto command = "cd '" + folder.path().string() + "' && '" + python() + "' program.py > output.txt 2>&1";
  if (std::system(command.c_str()) == 0) return ::testing::AssertionSuccess();
  std::ostringstream output;
  output << std::ifstream(folder / "output.txt").rdbuf();
  return ::testing::AssertionFailure() << output.str();
}

}  // namespace hfta::test
