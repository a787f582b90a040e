#pragma once

#include <string>

#include "hfta/cli/study_file.h"
#include "hfta/tune/tuner.h"

namespace hfta::cli {

/// How the tuner runs a study file, stopped by `Interrupts`.
tune::TunerOptions tuner_options(const StudyFile& file, const std::string& folder);

/// The metric's name among those of a `TrialArray`.
std::string metric_key(const StudyFile& file);

}  // namespace hfta::cli
