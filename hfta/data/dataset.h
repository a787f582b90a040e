#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hfta::data {

/// Items in memory.
struct Dataset {
  at::Tensor inputs;               ///< `[items, ...]`.
  at::Tensor targets;              ///< `[items]` int64 class numbers, or float values to predict `[items, ...]`.
  std::int64_t classes = 0;        ///< 0 where the targets are no classes.
  std::vector<std::string> names;  ///< Of the classes, or empty.

  std::int64_t size() const { return inputs.defined() ? inputs.size(0) : 0; }
  /// One item's shape.
  std::vector<std::int64_t> input_shape() const { return inputs.sizes().slice(1).vec(); }
};

/// @throws InvalidArgument unless there are items, as many targets as inputs, and class numbers in `[0, classes)`.
void check(const Dataset& dataset, const std::string& what);

/// The items with these numbers (int64), in this order; memory of their own.
Dataset subset(const Dataset& dataset, const at::Tensor& items);

/// What is left for training, and what is held out.
struct Split {
  Dataset train, held_out;
};

struct SplitOptions {
  double fraction = 0.1;   ///< Of the items that is held out, rounded to whole items, at least one.
  std::uint64_t seed = 0;  ///< The same seed holds out the same items.
  bool stratified = true;  ///< Each class gives its share; ignored where the targets are no classes.
};

/// Holds out some items; both parts keep the order of the dataset.
Split split(const Dataset& dataset, const SplitOptions& options);

/// Mean and standard deviation of each feature over the items.
struct Scaling {
  at::Tensor mean, deviation;  ///< One item's shape.
};
/// A feature that never changes has the deviation 1.
Scaling scaling_of(const Dataset& dataset);
/// `(inputs - mean) / deviation`; targets are shared with the original.
Dataset scaled(const Dataset& dataset, const Scaling& scaling);

struct BlobsOptions {
  std::int64_t items = 1000;
  std::vector<std::int64_t> shape = {2};  ///< Of one item.
  std::int64_t classes = 3;
  double spread = 1.0;            ///< Standard deviation within a class; the centres have 2.
  std::uint64_t seed = 0;         ///< Of the items.
  std::uint64_t centre_seed = 0;  ///< Of the classes' centres: equal for the parts of one problem.
};

/// Normal clouds around one random centre per class: a quick problem that a model can learn. Classes take turns.
Dataset blobs(const BlobsOptions& options);

}  // namespace hfta::data
