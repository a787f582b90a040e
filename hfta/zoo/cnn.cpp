#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "hfta/zoo/builtin.h"

namespace hfta::zoo {
namespace {

namespace nn = torch::nn;

struct CnnOptions {
  std::vector<std::int64_t> channels;
  std::int64_t kernel, hidden;
  bool batch_norm;
  double dropout;
};

struct CnnImpl : nn::Module {
  CnnImpl(const DataShape& data, const CnnOptions& options) {
    std::int64_t channels = data.input[0], rows = data.input[1], columns = data.input[2];
    for (const auto size : options.channels) {
      // A batch norm has a bias of its own.
      features->push_back(
          nn::Conv2d(nn::Conv2dOptions(channels, size, options.kernel).padding(options.kernel / 2).bias(!options.batch_norm)));
      if (options.batch_norm) features->push_back(nn::BatchNorm2d(size));
      features->push_back(nn::ReLU());
      features->push_back(nn::MaxPool2d(2));
      channels = size, rows /= 2, columns /= 2;
    }
    std::int64_t width = channels * rows * columns;
    const auto add_dropout = [&] {
      if (options.dropout > 0) head->push_back(nn::Dropout(options.dropout));
    };
    if (options.hidden > 0) {
      add_dropout();
      head->push_back(nn::Linear(width, options.hidden));
      head->push_back(nn::ReLU());
      width = options.hidden;
    }
    add_dropout();
    head->push_back(nn::Linear(width, data.outputs));
    register_module("features", features);
    register_module("head", head);
  }

  at::Tensor forward(const at::Tensor& input) { return head->forward(features->forward(input).flatten(1)); }

  nn::Sequential features, head;
};
TORCH_MODULE(Cnn);

}  // namespace

Model cnn(base::OptionReader& reader, const DataShape& data) {
  const CnnOptions options{.channels = reader.integers("channels", {16, 32}),
                           .kernel = reader.integer("kernel", 3),
                           .hidden = reader.integer("hidden", 0, 0),
                           .batch_norm = reader.flag("batch_norm", true),
                           .dropout = reader.number("dropout", 0.25, 0, 1)};
  HFTA_CHECK(data.input.size() == 3, "zoo::cnn: expected items of shape [channels, rows, columns], got ", text_of(data.input));
  HFTA_CHECK(!options.channels.empty(), "zoo::cnn: expected at least one size in \"channels\", got none");
  HFTA_CHECK(options.kernel % 2 == 1, "zoo::cnn: expected an odd number as \"kernel\", got ", options.kernel);
  const auto least = std::int64_t{1} << std::min<std::size_t>(options.channels.size(), 62);
  HFTA_CHECK(data.input[1] >= least && data.input[2] >= least, "zoo::cnn: expected at least ", least, " rows and columns for ",
             options.channels.size(), " poolings by 2, got items of shape ", text_of(data.input));
  return model([=] { return Cnn(data, options); });
}

}  // namespace hfta::zoo
