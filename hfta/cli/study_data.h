#pragma once

#include "hfta/cli/study_file.h"
#include "hfta/data/dataset.h"

namespace hfta::cli {

/// The three parts of a study's data. `test` has no items where the study names none.
struct StudyData {
  data::Dataset train, validation, test;
};

/// Reads the data of a study file: splits off the validation part (the same for the same seed), limits the training part and
/// normalises all by its mean and deviation.
/// @throws InvalidArgument when a file is missing or broken, or a part would be empty.
StudyData load_data(const DataSection& section, std::uint64_t seed);

}  // namespace hfta::cli
