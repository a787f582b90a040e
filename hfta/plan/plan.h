#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hfta::plan {

/// How an array is run: pure data, chosen by measurement, kept with the run.
struct Plan {
  std::int64_t width = 1;                        ///< Lanes of a group.
  std::int64_t workers = 1;                      ///< Groups that run at once.
  int intra_op_threads = 1;                      ///< Of each worker.
  bool recorded = true;                          ///< Replays recorded steps; false: plain steps.
  std::string device = "cpu";
  std::string precision = "float32";
  std::map<std::string, std::string> lowerings{};  ///< Operator and shapes -> name of the lowering chosen.

  bool operator==(const Plan&) const = default;
};

}  // namespace hfta::plan
