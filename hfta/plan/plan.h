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
  /// Times the ways that `lowerings` does not name; false: takes each operator's first (of a single lane LibTorch's own), so that the same
  /// plan gives the same bits on every run.
  bool measures_lowerings = true;

  bool operator==(const Plan&) const = default;
};

/// One line for people: "8 lanes x 2 workers x 1 thread, recorded, cpu, float32".
std::string describe(const Plan& plan);

/// Groups into which `lanes` lanes fall.
std::int64_t groups(const Plan& plan, std::int64_t lanes);

/// @throws InvalidArgument naming the field that is wrong for an array of `lanes` lanes.
void validate(const Plan& plan, std::int64_t lanes);

/// The plan for an array that has fewer lanes now: no group wider than the array, no worker without a group.
Plan fitted(Plan plan, std::int64_t lanes);

/// The plan as JSON text with an integer `format`, keys sorted.
std::string to_json(const Plan& plan);

/// The way back. `source` (a file's name) begins each message.
/// @throws InvalidArgument for text that is no JSON, another format, a missing, unknown or wrong entry (an unknown key lists the known ones).
Plan from_json(const std::string& text, const std::string& source = "plan.json");

}  // namespace hfta::plan
