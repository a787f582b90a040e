#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "hfta/zoo/builtin.h"

namespace hfta::zoo {
namespace {

namespace nn = torch::nn;

struct MlpOptions {
  std::vector<std::int64_t> hidden;
  std::string activation, norm;
  double dropout;
};

void add_activation(nn::Sequential& layers, const std::string& name) {
  if (name == "relu") layers->push_back(nn::ReLU());
  if (name == "tanh") layers->push_back(nn::Tanh());
  if (name == "gelu") layers->push_back(nn::GELU());
  if (name == "silu") layers->push_back(nn::SiLU());
  if (name == "leaky_relu") layers->push_back(nn::LeakyReLU());
}

struct MlpImpl : nn::Module {
  MlpImpl(std::int64_t features, std::int64_t outputs, const MlpOptions& options) {
    std::int64_t width = features;
    for (const auto size : options.hidden) {
      layers->push_back(nn::Linear(width, size));
      if (options.norm == "batch") layers->push_back(nn::BatchNorm1d(size));
      if (options.norm == "layer") layers->push_back(nn::LayerNorm(nn::LayerNormOptions({size})));
      add_activation(layers, options.activation);
      if (options.dropout > 0) layers->push_back(nn::Dropout(options.dropout));
      width = size;
    }
    layers->push_back(nn::Linear(width, outputs));
    register_module("layers", layers);
  }

  at::Tensor forward(const at::Tensor& input) { return layers->forward(input.flatten(1)); }

  nn::Sequential layers;
};
TORCH_MODULE(Mlp);

}  // namespace

Model mlp(base::OptionReader& reader, const DataShape& data) {
  const MlpOptions options{.hidden = reader.integers("hidden", {128, 128}),
                           .activation = reader.word("activation", "relu", {"relu", "tanh", "gelu", "silu", "leaky_relu"}),
                           .norm = reader.word("norm", "none", {"none", "batch", "layer"}),
                           .dropout = reader.number("dropout", 0, 0, 1)};
  return model([=, features = data.features(), outputs = data.outputs] { return Mlp(features, outputs, options); });
}

}  // namespace hfta::zoo
