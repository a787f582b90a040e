#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/options.h"

namespace hfta::zoo {

using base::Option;
using base::Options;

/// What a model is built for.
struct DataShape {
  std::vector<std::int64_t> input;  ///< One item's shape, without the batch.
  std::int64_t outputs = 0;         ///< Classes, or numbers to predict.

  /// Values of one item.
  std::int64_t features() const;
};

/// A model with its options settled: builds as many modules as lanes are needed.
struct Model {
  /// A new module; its initial weights are drawn from the default generator.
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  /// Logits `[N, outputs]` of a module that `build` made, for a batch `[N, ...]`.
  std::function<at::Tensor(torch::nn::Module& module, const at::Tensor& input)> forward;
};

/// Makes a model from options (the reader refuses those that are not asked for) and the data's shape.
using Factory = std::function<Model(base::OptionReader& options, const DataShape& data)>;

/// A model out of a function that builds an ordinary module holder with `forward(Tensor) -> Tensor`.
template <typename Build>
Model model(Build build) {
  using Net = typename decltype(build())::ContainedType;
  return {[build] { return std::shared_ptr<torch::nn::Module>(build().ptr()); },
          [](torch::nn::Module& module, const at::Tensor& input) -> at::Tensor {
            auto* net = dynamic_cast<Net*>(&module);
            HFTA_CHECK(net, "zoo::Model: expected a module that this model has built, got another one (", module.name(), ")");
            return net->forward(input);
          }};
}

}  // namespace hfta::zoo
