#pragma once

#include <vector>

#include "hfta/cli/study_file.h"
#include "hfta/cli/toml_table.h"
#include "hfta/tune/space.h"

namespace hfta::cli {

/// Reads `[space]`, in the order of the file. A list is short for a choice. What an entry sets follows from its name:
/// `optimizer`, `batch_size`, `seed`, a hyper-parameter of an optimizer, else an option of the model; `sets = "..."` says otherwise.
std::vector<SpaceEntry> read_space(TomlTable table);

/// The same as the tuner takes it. @throws InvalidArgument for a condition on what is no earlier parameter.
tune::Space tune_space(const std::vector<SpaceEntry>& space);

/// @throws InvalidArgument when no optimizer in use has a searched hyper-parameter.
void check_hypers(const std::vector<SpaceEntry>& space, const OptimizerSection& optimizer);

}  // namespace hfta::cli
