#pragma once

#include <optional>
#include <string>

#include "hfta/cli/study_file.h"
#include "hfta/tune/study.h"

namespace hfta::cli {

/// Where a study and its run folder lie.
struct Located {
  std::string storage;            ///< SQLite file.
  std::string name;               ///< Of the study in it; empty: the only one.
  std::string folder;             ///< Run folder.
  std::optional<StudyFile> file;  ///< Empty where only the SQLite file is known.

  /// Where the trial's weights lie when they were exported.
  std::string weights(std::int64_t trial) const;
};

/// Finds a study by its study file, its run folder (which keeps a copy of the study file), or its SQLite file.
/// @throws InvalidArgument when there is neither.
Located locate(const std::string& path);

/// The study, for reading only. @throws InvalidArgument when it was not begun yet.
tune::Study read_study(const Located& located);

}  // namespace hfta::cli
