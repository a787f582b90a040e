#include "hfta/data/dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"

namespace hfta::data {
namespace {

// Marks `count` of the items, drawn without replacement.
void hold_out(at::Tensor& held, const at::Tensor& items, std::int64_t count, at::Generator& generator) {
  const auto order = at::randperm(items.size(0), generator, at::kLong);
  held.index_fill_(0, items.index_select(0, order.slice(0, 0, count)), true);
}

// How many items each class gives of `count` in all: its share rounded down, and one more where the most was cut off.
std::vector<std::int64_t> shares(const std::vector<at::Tensor>& classes, double fraction, std::int64_t count) {
  std::vector<std::int64_t> counts, order;
  std::vector<double> cut;
  for (const auto& items : classes) {
    const double share = fraction * static_cast<double>(items.size(0));
    order.push_back(static_cast<std::int64_t>(counts.size()));
    counts.push_back(static_cast<std::int64_t>(share));
    cut.push_back(share - std::floor(share));
    count -= counts.back();
  }
  std::ranges::stable_sort(order, std::greater(), [&](std::int64_t one) { return cut[one]; });
  for (std::int64_t i = 0; i < count; ++i) ++counts[order[i]];
  return counts;
}

}  // namespace

void check(const Dataset& dataset, const std::string& what) {
  HFTA_CHECK(dataset.size() > 0, "data::Dataset: expected at least one item in ", what, ", got none");
  HFTA_CHECK(dataset.targets.defined() && dataset.targets.dim() > 0 && dataset.targets.size(0) == dataset.size(),
             "data::Dataset: expected as many targets as inputs in ", what, ", got ", dataset.size(), " inputs and ",
             dataset.targets.defined() && dataset.targets.dim() > 0 ? dataset.targets.size(0) : 0, " targets");
  if (dataset.classes == 0) return;
  const auto least = dataset.targets.min().item().toLong(), most = dataset.targets.max().item().toLong();
  HFTA_CHECK(least >= 0 && most < dataset.classes, "data::Dataset: expected class numbers in [0, ", dataset.classes, ") in ", what,
             ", got ", least < 0 ? least : most);
}

Dataset subset(const Dataset& dataset, const at::Tensor& items) {
  return {dataset.inputs.index_select(0, items), dataset.targets.index_select(0, items), dataset.classes, dataset.names};
}

Split split(const Dataset& dataset, const SplitOptions& options) {
  HFTA_CHECK(options.fraction > 0 && options.fraction < 1, "data::split: expected a fraction in (0, 1), got ", options.fraction);
  HFTA_CHECK(dataset.size() >= 2, "data::split: expected at least 2 items, got ", dataset.size());
  auto generator = base::seeded_generator(options.seed);
  const auto count = std::clamp<std::int64_t>(std::llround(options.fraction * static_cast<double>(dataset.size())), 1, dataset.size() - 1);
  auto held = at::zeros({dataset.size()}, at::kBool);
  if (options.stratified && dataset.classes > 0) {
    std::vector<at::Tensor> classes;
    for (std::int64_t one = 0; one < dataset.classes; ++one) classes.push_back(dataset.targets.cpu().eq(one).nonzero().squeeze(1));
    const auto counts = shares(classes, options.fraction, count);
    for (std::size_t one = 0; one < classes.size(); ++one) hold_out(held, classes[one], counts[one], generator);
  } else {
    hold_out(held, at::arange(dataset.size(), at::kLong), count, generator);
  }
  const auto items = [&](const at::Tensor& mask) { return mask.nonzero().squeeze(1).to(dataset.inputs.device()); };
  return {subset(dataset, items(held.logical_not())), subset(dataset, items(held))};
}

Scaling scaling_of(const Dataset& dataset) {
  const auto deviation = dataset.inputs.std(at::IntArrayRef{0}, /*unbiased=*/false);
  return {dataset.inputs.mean(at::IntArrayRef{0}), at::where(deviation.gt(0), deviation, at::ones_like(deviation))};
}

Dataset scaled(const Dataset& dataset, const Scaling& scaling) {
  HFTA_CHECK(scaling.mean.sizes() == dataset.inputs.sizes().slice(1), "data::scaled: expected the scaling of items of shape ",
             dataset.inputs.sizes().slice(1), ", got one of shape ", scaling.mean.sizes());
  return {dataset.inputs.sub(scaling.mean).div_(scaling.deviation), dataset.targets, dataset.classes, dataset.names};
}

Dataset blobs(const BlobsOptions& options) {
  HFTA_CHECK(options.items >= 1, "data::blobs: expected at least 1 item, got ", options.items);
  HFTA_CHECK(options.classes >= 2, "data::blobs: expected at least 2 classes, got ", options.classes);
  HFTA_CHECK(options.spread >= 0, "data::blobs: expected a spread of at least 0, got ", options.spread);
  for (const auto size : options.shape) HFTA_CHECK(size >= 1, "data::blobs: expected sizes of at least 1 in the shape, got ", size);
  auto centre_generator = base::seeded_generator(options.centre_seed);
  auto generator = base::seeded_generator(options.seed + 1);
  const auto sizes = [&](std::int64_t first) {
    std::vector<std::int64_t> all{first};
    all.insert(all.end(), options.shape.begin(), options.shape.end());
    return all;
  };
  const auto centres = at::empty(sizes(options.classes)).normal_(0, 2, centre_generator);
  const auto targets = at::arange(options.items, at::kLong).remainder_(options.classes);
  const auto noise = at::empty(sizes(options.items)).normal_(0, 1, generator);
  return {centres.index_select(0, targets).add_(noise, options.spread), targets, options.classes, {}};
}

}  // namespace hfta::data
