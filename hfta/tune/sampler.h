#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hfta/tune/random.h"
#include "hfta/tune/space.h"
#include "hfta/tune/trial.h"

namespace hfta::tune {

/// Proposes the parameters of the next trial. Keeps no state of its own: what it proposes follows from the space, the trials so far
/// and `random`, which follows from (seed, trial number); so a resumed study goes on as if it had never stopped.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual std::string name() const = 0;
  /// @param history trials so far, of any state; those that lie outside of the space count for nothing.
  /// @returns nothing when there is nothing new to try.
  virtual std::optional<Parameters> suggest(const Space& space, std::span<const Trial> history, Random& random) = 0;
};

struct RandomOptions {
  bool allow_duplicates = false;  ///< A finite space gives each point once, unless this is set.
};

/// Independent draws; on a finite space without those tried before, until none is left.
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(RandomOptions options = {}) : options_(options) {}
  std::string name() const override { return "random"; }
  std::optional<Parameters> suggest(const Space& space, std::span<const Trial> history, Random& random) override;

 private:
  RandomOptions options_;
};

struct GridOptions {
  std::int64_t points = 5;                        ///< Values of a continuous parameter: both bounds and between them, even on its scale.
  std::map<std::string, std::int64_t> points_of{};  ///< The same for a parameter by name; thins a finite one out.
};

/// Every point of a grid in order, the last parameter fastest, without those tried before.
class GridSampler : public Sampler {
 public:
  /// @throws InvalidArgument when a number of points is below 1.
  explicit GridSampler(GridOptions options = {});
  std::string name() const override { return "grid"; }
  std::optional<Parameters> suggest(const Space& space, std::span<const Trial> history, Random& random) override;
  /// How many trials the whole grid takes. @throws InvalidArgument for an unknown name in `points_of`, or a grid too large to list.
  std::uint64_t size(const Space& space) const;

 private:
  std::vector<std::vector<double>> axes(const Space& space) const;
  GridOptions options_;
};

/// One draw from a distribution, bounds included.
double draw(const Distribution& distribution, Random& random);

/// "random" or "grid". @throws InvalidArgument listing the known ones.
std::unique_ptr<Sampler> make_sampler(const std::string& name);

}  // namespace hfta::tune
