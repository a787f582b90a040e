#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hfta/ops/rule.h"

namespace hfta::lanes {

/// Which lowering each operator takes, by operator, shapes and lanes: measured at first sight and remembered, so that the same table gives
/// the same program again (a plan keeps it).
class LoweringTable {
 public:
  /// @param measures times lowerings that are not yet known; else the first one that applies is taken.
  explicit LoweringTable(std::map<std::string, std::string> known = {}, bool measures = true) : known_(std::move(known)), measures_(measures) {}

  /// What identifies a choice: "aten::mm f32[8,32,10]@0 f32[10,5] x8".
  static std::string key(const c10::OperatorHandle& op, std::span<const ops::LaneValue> arguments, std::int64_t lanes);

  /// A way to run the node: its name and the call.
  struct Candidate {
    std::string name;
    std::function<std::optional<std::vector<ops::LaneValue>>()> run;
  };
  /// Runs the chosen candidate and gives its index and results; nothing when none applies. What is timed is not seen by an interceptor.
  std::optional<std::pair<std::size_t, std::vector<ops::LaneValue>>> run(const std::string& key, std::span<const Candidate> candidates);

  /// Whether lowerings that are not yet known are timed from now on.
  void set_measures(bool measures) { measures_ = measures; }
  /// Adds choices made elsewhere; they replace what is known. @returns whether one of them was another choice.
  bool add(const std::map<std::string, std::string>& choices);
  /// What was asked for since the last call of this, as it was chosen.
  std::map<std::string, std::string> take_used() { return std::exchange(used_, {}); }

 private:
  std::size_t fastest(std::span<const Candidate> candidates) const;
  std::map<std::string, std::string> known_, used_;
  bool measures_;
};

}  // namespace hfta::lanes
