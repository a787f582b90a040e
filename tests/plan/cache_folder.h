#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hfta::test {

/// An empty folder where plans are kept as long as this lives; afterwards they are not kept, as in other tests.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& name) : path_(std::filesystem::temp_directory_path() / ("hfta-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    setenv("HFTA_PLAN_CACHE", path_.c_str(), 1);
  }
  ~CacheFolder() {
    setenv("HFTA_PLAN_CACHE", "off", 1);
    std::filesystem::remove_all(path_);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hfta::test
