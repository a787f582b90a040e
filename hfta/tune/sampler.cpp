#include "hfta/tune/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

constexpr std::uint64_t kMostListed = 1'000'000;  // values of an axis, points searched one by one

std::unordered_set<std::string> keys(const Space& space, std::span<const Trial> history) {
  std::unordered_set<std::string> keys;
  for (const auto& trial : history)
    if (auto key = space.key(trial.parameters)) keys.insert(std::move(*key));
  return keys;
}

std::vector<double> all_points(const Distribution& distribution) {
  std::vector<double> all(points(distribution).value());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = point(distribution, i);
  return all;
}

double between(double low, double high, bool log, double share) {
  if (low == high) return low;
  const double at = log ? std::exp(std::log(low) * (1 - share) + std::log(high) * share) : low * (1 - share) + high * share;
  return std::clamp(at, low, high);  // the ends must not be missed by rounding
}

// `count` values of a continuous range, even on its scale; one is the middle.
std::vector<double> spread(const FloatDistribution& d, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(between(d.low, d.high, d.log, count == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(count - 1)));
  if (count > 1) values.front() = d.low, values.back() = d.high;
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// `count` of a finite parameter's values, even by index; on a log scale even there.
std::vector<double> thinned(const Distribution& distribution, std::int64_t count) {
  const auto all = points(distribution).value();
  if (static_cast<std::uint64_t>(count) >= all) return all_points(distribution);
  const auto* whole = std::get_if<IntDistribution>(&distribution);
  std::vector<double> values;
  if (whole && whole->log) {
    for (const double v : spread({.low = static_cast<double>(whole->low), .high = static_cast<double>(whole->high), .log = true}, count))
      values.push_back(std::round(v));
  } else {
    for (const double i : spread({.low = 0, .high = static_cast<double>(all - 1)}, count))
      values.push_back(point(distribution, static_cast<std::uint64_t>(std::llround(i))));
  }
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The untried points of a small space, one of them evenly: draws alone could take forever near its end.
std::optional<Parameters> untried(const Space& space, const std::unordered_set<std::string>& tried, Random& random) {
  std::vector<std::vector<double>> axes;
  for (const auto& dimension : space.dimensions()) axes.push_back(all_points(dimension.distribution));
  std::vector<Parameters> left;
  space.walk(axes, [&](const Parameters& parameters) {
    if (!tried.contains(space.key(parameters).value())) left.push_back(parameters);
    return false;
  });
  if (left.empty()) return std::nullopt;
  return left[random.below(left.size())];
}

}  // namespace

double draw(const Distribution& distribution, Random& random) {
  if (const auto* d = std::get_if<FloatDistribution>(&distribution); d && !d->step) return between(d->low, d->high, d->log, random.unit());
  if (const auto* d = std::get_if<IntDistribution>(&distribution); d && d->log) {
    // Each whole number owns the range that rounds to it, so that the bounds are as likely as their scale says.
    const double low = static_cast<double>(d->low), high = static_cast<double>(d->high);
    return std::clamp(std::round(between(low - 0.5, high + 0.5, true, random.unit())), low, high);
  }
  return point(distribution, random.below(points(distribution).value()));
}

std::optional<Parameters> RandomSampler::suggest(const Space& space, std::span<const Trial> history, Random& random) {
  const auto once = [&] { return space.build([&](std::size_t d) { return draw(space.dimensions()[d].distribution, random); }); };
  const auto points = space.points();
  if (options_.allow_duplicates || !points) return once();
  const auto tried = keys(space, history);
  if (tried.size() >= *points) return std::nullopt;
  const bool small = *points <= kMostListed;
  for (int attempt = 0; !small || attempt < 64; ++attempt) {
    auto parameters = once();
    if (!tried.contains(space.key(parameters).value())) return parameters;
  }
  return untried(space, tried, random);
}

GridSampler::GridSampler(GridOptions options) : options_(std::move(options)) {
  HFTA_CHECK(options_.points >= 1, "tune::GridSampler: expected at least 1 point per parameter, got ", options_.points);
  for (const auto& [name, count] : options_.points_of)
    HFTA_CHECK(count >= 1, "tune::GridSampler: expected at least 1 point for \"", name, "\", got ", count);
}

std::vector<std::vector<double>> GridSampler::axes(const Space& space) const {
  const auto& dimensions = space.dimensions();
  for (const auto& [name, count] : options_.points_of) {
    std::string known;
    for (const auto& dimension : dimensions) known += (known.empty() ? "" : ", ") + dimension.name;
    HFTA_CHECK(std::any_of(dimensions.begin(), dimensions.end(), [&, &name = name](const Dimension& d) { return d.name == name; }),
               "tune::GridSampler: expected points of one of ", known, ", got \"", name, "\"");
  }
  std::vector<std::vector<double>> axes;
  for (const auto& dimension : dimensions) {
    const auto own = options_.points_of.find(dimension.name);
    const auto all = points(dimension.distribution);
    const bool thin = own != options_.points_of.end();
    const auto wanted = thin ? own->second : options_.points;
    const auto listed = !all ? static_cast<std::uint64_t>(wanted) : thin ? std::min(*all, static_cast<std::uint64_t>(wanted)) : *all;
    HFTA_CHECK(listed <= kMostListed, "tune::GridSampler: expected at most ", kMostListed, " points for \"", dimension.name, "\", got ", listed);
    if (!all) axes.push_back(spread(std::get<FloatDistribution>(dimension.distribution), wanted));
    else axes.push_back(thin ? thinned(dimension.distribution, wanted) : all_points(dimension.distribution));
  }
  return axes;
}

std::optional<Parameters> GridSampler::suggest(const Space& space, std::span<const Trial> history, Random&) {
  const auto tried = keys(space, history);
  std::optional<Parameters> found;
  space.walk(axes(space), [&](const Parameters& parameters) {
    if (tried.contains(space.key(parameters).value())) return false;
    found = parameters;
    return true;
  });
  return found;
}

std::uint64_t GridSampler::size(const Space& space) const {
  const auto size = space.grid_points(axes(space));
  HFTA_CHECK(size, "tune::GridSampler: expected a grid of fewer than 2^64 points, got more");
  return *size;
}

std::unique_ptr<Sampler> make_sampler(const std::string& name) {
  if (name == "random") return std::make_unique<RandomSampler>();
  HFTA_CHECK(name == "grid", "tune::Sampler: expected one of random, grid, got \"", name, "\"");
  return std::make_unique<GridSampler>();
}

}  // namespace hfta::tune
