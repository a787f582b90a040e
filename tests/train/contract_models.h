#pragma once

#include <torch/torch.h>

/// Models of the kinds that people train, small, with odd sizes: each takes `x` `[6, 12]` and gives `[6, 5]`. `lane` tells them apart where
/// a number of theirs differs.
namespace hfta::test {

namespace nn = torch::nn;

struct MlpImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 9))}, two{register_module("two", nn::Linear(9, 5))};
  explicit MlpImpl(int) {}
  at::Tensor forward(const at::Tensor& x) { return two(torch::relu(one(x))); }
};
TORCH_MODULE(Mlp);

struct CnnImpl : nn::Module {
  // No bias before the norm: its true gradient is zero, and Adam makes steps of the rounding noise.
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)))}, two{register_module("two", nn::Conv2d(4, 6, 3))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(4))};
  nn::Dropout drop;
  nn::Linear head{register_module("head", nn::Linear(6, 5))};
  explicit CnnImpl(int lane) : drop(0.1 + 0.1 * lane) { register_module("drop", drop); }  // another p in each lane
  at::Tensor forward(const at::Tensor& x) {
    auto y = torch::max_pool2d(torch::relu(norm(one(x.view({-1, 1, 4, 3}).repeat({1, 1, 2, 2})))), 2);
    y = two(nn::functional::pad(y, nn::functional::PadFuncOptions({1, 1, 1, 1})));
    return head(drop(nn::functional::adaptive_avg_pool2d(y, nn::functional::AdaptiveAvgPool2dFuncOptions(1)).flatten(1)));
  }
};
TORCH_MODULE(Cnn);

struct RecurrentImpl : nn::Module {
  nn::GRU gru{register_module("gru", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(8, 5))};
  at::Tensor scale = register_parameter("scale", torch::randn({3}));
  explicit RecurrentImpl(int) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto h = std::get<0>(gru->forward(x.view({-1, 4, 3}) * scale)).select(1, -1);
    auto sum = torch::zeros(h.sizes(), h.options());  // case A14: written in place
    sum += h;
    return head(sum);
  }
};
TORCH_MODULE(Recurrent);

struct LongShortImpl : nn::Module {
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(4, 5))};
  explicit LongShortImpl(int) {}
  at::Tensor forward(const at::Tensor& x) { return head(std::get<0>(lstm->forward(x.view({-1, 4, 3}))).select(1, -1)); }
};
TORCH_MODULE(LongShort);

struct EncoderImpl : nn::Module {
  nn::Embedding embedding{register_module("embedding", nn::Embedding(7, 8))};
  nn::TransformerEncoderLayer layer{register_module("layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(10).dropout(0.2)))};
  nn::Linear in{register_module("in", nn::Linear(3, 8))}, head{register_module("head", nn::Linear(8, 5))};
  explicit EncoderImpl(int) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto y = in(x.view({-1, 4, 3})) + embedding(torch::arange(4)).unsqueeze(0);
    return head(layer(y.transpose(0, 1)).mean(0));
  }
};
TORCH_MODULE(Encoder);

/// Words from the signs and sizes of the input: embeddings with a padding row, summed by weights of the lane's own.
struct WordsImpl : nn::Module {
  nn::Embedding words{register_module("words", nn::Embedding(nn::EmbeddingOptions(11, 7).padding_idx(3)))};
  nn::LayerNorm norm{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({7})))};
  nn::Linear head{register_module("head", nn::Linear(7, 5))};
  at::Tensor weights = register_parameter("weights", torch::randn({12, 1}));
  explicit WordsImpl(int) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto indices = x.mul(4).to(torch::kLong).remainder(11);
    return head(norm((words(indices) * weights).sum(1)));
  }
};
TORCH_MODULE(Words);

}  // namespace hfta::test
