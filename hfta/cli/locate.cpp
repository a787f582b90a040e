#include "hfta/cli/locate.h"

#include <filesystem>
#include <fstream>

#include "hfta/base/error.h"

namespace hfta::cli {
namespace {

namespace fs = std::filesystem;

bool is_sqlite(const std::string& path) {
  char magic[16] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string(magic, 15) == "SQLite format 3";
}

}  // namespace

std::string Located::weights(std::int64_t trial) const { return (fs::path(folder) / "lanes" / ("trial-" + std::to_string(trial) + ".pt")).string(); }

Located locate(const std::string& path) {
  std::error_code ignored;
  HFTA_CHECK(fs::exists(path, ignored), path, ": expected a study file, a run folder or a SQLite file, got nothing there");
  Located located;
  if (fs::is_directory(path, ignored)) {
    const auto kept = (fs::path(path) / "study.toml").string();
    HFTA_CHECK(fs::exists(kept, ignored), path, ": expected a run folder with study.toml, got none");
    auto file = read_study_file(kept);
    // The folder may have been moved since, and its study with it.
    const bool is_beside = fs::path(file.output.storage) == fs::path(file.output.folder) / "study.db";
    file.output.folder = path;
    if (is_beside) file.output.storage = (fs::path(path) / "study.db").string();
    // The copy's own name says nothing about the study's.
    if (fs::exists(file.output.storage, ignored)) file.study.name = tune::Study::read(file.output.storage).name();
    located.file = std::move(file);
  } else if (is_sqlite(path)) {
    located.storage = path;
    located.folder = fs::path(path).parent_path().string();
    return located;
  } else {
    located.file = read_study_file(path);
  }
  located.storage = located.file->output.storage;
  located.folder = located.file->output.folder;
  located.name = located.file->study.name;
  return located;
}

tune::Study read_study(const Located& located) {
  std::error_code ignored;
  HFTA_CHECK(fs::exists(located.storage, ignored), located.storage, ": expected a study that was begun, got no such file; 'hfta sweep' begins it");
  return tune::Study::read(located.storage, located.name);
}

}  // namespace hfta::cli
