#pragma once

#include "hfta/cli/commands.h"

namespace hfta::cli {

/// The whole command: parses the arguments, runs what they ask for, reports any failure as one line `hfta: <message>`.
/// @returns the exit code: 0 done, 1 the run failed, 2 bad use, 130 interrupted.
int run(int argc, const char* const* argv, Streams streams);

}  // namespace hfta::cli
