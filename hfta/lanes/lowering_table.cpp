#include "hfta/lanes/lowering_table.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <chrono>
#include <limits>
#include <sstream>

namespace hfta::lanes {
namespace {

using ops::LaneTensor;
using ops::LaneValue;

void write(std::ostream& out, const LaneTensor& value) {
  out << c10::toString(value.tensor.scalar_type()) << '[';
  for (std::int64_t d = 0; d < value.tensor.dim(); ++d) out << (d ? "," : "") << value.tensor.size(d);
  out << ']';
  if (value.axis) out << '@' << *value.axis;
  out << ' ';
}

/// The least of a few runs; of one that is hopeless beside `best`, the first that warms up.
double seconds(const LoweringTable::Candidate& candidate, double best) {
  using Clock = std::chrono::steady_clock;
  constexpr double kHopeless = 4;
  double least = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto start = Clock::now();
    if (!candidate.run()) return std::numeric_limits<double>::infinity();
    const auto taken = std::chrono::duration<double>(Clock::now() - start).count();
    if (taken > kHopeless * best) return taken;
    if (repeat > 0) least = std::min(least, taken);
  }
  return least;
}

}  // namespace

std::string LoweringTable::key(const c10::OperatorHandle& op, std::span<const LaneValue> arguments, std::int64_t lanes) {
  std::ostringstream out;
  out << op.schema().operator_name() << ' ';
  for (const auto& argument : arguments) {
    if (const auto* tensor = std::get_if<LaneTensor>(&argument)) write(out, *tensor);
    if (const auto* list = std::get_if<std::vector<LaneTensor>>(&argument))
      for (const auto& tensor : *list) write(out, tensor);
    if (const auto* plain = std::get_if<c10::IValue>(&argument); plain && (plain->isInt() || plain->isBool() || plain->isIntList() || plain->isBoolList()))
      out << *plain << ' ';
  }
  out << 'x' << lanes;
  return out.str();
}

bool LoweringTable::add(const std::map<std::string, std::string>& choices) {
  bool changed = false;
  for (const auto& [key, name] : choices) {
    auto& known = known_[key];
    changed |= !known.empty() && known != name;
    known = name;
  }
  return changed;
}

std::size_t LoweringTable::fastest(std::span<const Candidate> candidates) const {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  std::size_t best = 0;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double taken = seconds(candidates[i], best_seconds);
    if (taken < best_seconds) best = i, best_seconds = taken;
  }
  return best;
}

std::optional<std::pair<std::size_t, std::vector<LaneValue>>> LoweringTable::run(const std::string& key, std::span<const Candidate> candidates) {
  if (candidates.empty()) return std::nullopt;
  std::size_t first = 0;
  if (candidates.size() > 1) {
    const auto known = known_.find(key);
    if (known != known_.end()) {
      for (std::size_t i = 0; i < candidates.size(); ++i)
        if (candidates[i].name == known->second) first = i;
    } else if (measures_) {
      first = fastest(candidates);
      known_[key] = candidates[first].name;
    }
    used_[key] = candidates[first].name;
  }
  if (auto results = candidates[first].run()) return std::pair(first, std::move(*results));
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (i != first)
      if (auto results = candidates[i].run()) return std::pair(i, std::move(*results));
  return std::nullopt;
}

}  // namespace hfta::lanes
