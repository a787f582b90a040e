#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hfta/plan/search.h"

namespace hfta::plan {

/// Choices of plans kept on disk, one file for each key. A file that cannot be read or written, is damaged, of another format or of
/// another key is told in the log and left alone: the plan is searched then.
class Cache {
 public:
  /// Where the process keeps plans: the folder that `HFTA_PLAN_CACHE` names, `$XDG_CACHE_HOME/hfta/plans` or `~/.cache/hfta/plans`;
  /// none where that variable is "off" or there is no home.
  static std::optional<std::filesystem::path> default_folder();

  explicit Cache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// What was chosen for this key: its plan, time, all timings, and an explanation that says when it was measured.
  std::optional<SearchResult> find(const std::string& key) const;
  /// Written beside its place and renamed. The oldest files are removed where there are more than 500.
  void store(const std::string& key, const SearchResult& result) const;
  std::filesystem::path file(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace hfta::plan
