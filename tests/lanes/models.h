#pragma once

#include <torch/torch.h>

#include "hfta/lanes/typed_array.h"

namespace hfta::test {

/// Odd sizes, a private parameter, a norm with buffers, dropout, a frozen parameter and an optional one that is off.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(std::int64_t hidden = 7)
      : first_(register_module("first", torch::nn::Linear(5, hidden))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        drop_(register_module("drop", torch::nn::Dropout(0.3))),
        second_(register_module("second", torch::nn::Linear(torch::nn::LinearOptions(hidden, 3).bias(false)))),
        scale_(register_parameter("scale", torch::randn({5}))),
        frozen_(register_parameter("frozen", torch::randn({3}), /*requires_grad=*/false)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return second_->forward(drop_->forward(torch::relu(norm_->forward(first_->forward(x * scale_))))) + frozen_;
  }

 private:
  torch::nn::Linear first_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Dropout drop_;
  torch::nn::Linear second_;
  torch::Tensor scale_, frozen_;
};
TORCH_MODULE(Net);

inline Net solo(std::uint64_t seed, std::int64_t hidden = 7) {
  torch::manual_seed(seed);
  return Net(hidden);
}

inline hfta::Array<Net> nets(std::int64_t lanes) {
  return hfta::Array<Net>(lanes, [](std::int64_t) { return Net(); });
}

}  // namespace hfta::test
