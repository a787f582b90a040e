#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/optim/adam.h"
#include "hfta/optim/sgd.h"
#include "hfta/train/api.h"
#include "tests/support.h"

namespace hfta::test {

/// A convolution, a norm with buffers, dropout, an in-place write into fresh zeros, a private parameter and a frozen one.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(double dropout = 0.3)
      : conv_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3)))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(3))),
        drop_(register_module("drop", torch::nn::Dropout(dropout))),
        last_(register_module("last", torch::nn::Linear(3 * 4 * 3, 5))),
        scale_(register_parameter("scale", torch::randn({5}))),
        frozen_(register_parameter("frozen", torch::randn({5}), /*requires_grad=*/false)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = drop_->forward(torch::relu(norm_->forward(conv_->forward(x)))).flatten(1);
    auto out = torch::zeros({x.size(0), 5}, hidden.options());
    out += last_->forward(hidden) * scale_;
    return out + frozen_;
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  torch::nn::Dropout drop_;
  torch::nn::Linear last_;
  torch::Tensor scale_, frozen_;
};
TORCH_MODULE(Net);

inline torch::Tensor loss_of(Net& net, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::nn::functional::cross_entropy(net->forward(x), y);
}

/// Batches that do not touch the default generator's stream of the models.
struct Data {
  explicit Data(std::int64_t batches = 20, std::int64_t items = 6, std::uint64_t seed = 77) {
    auto generator = base::seeded_generator(seed);
    for (std::int64_t i = 0; i < batches; ++i) {
      x.push_back(torch::randn({items, 1, 6, 5}, generator));
      y.push_back(torch::randint(5, {items}, generator, torch::kLong));
    }
  }
  std::vector<torch::Tensor> x, y;
};

/// The oracle: one plain program `manual_seed(seed); build; train`.
struct SoloRun {
  explicit SoloRun(std::uint64_t seed, double dropout = 0.3) {
    torch::manual_seed(seed);
    net = Net(dropout);
  }
  void use(std::unique_ptr<torch::optim::Optimizer> by) { optimizer = std::move(by); }
  torch::Tensor step(const torch::Tensor& x, const torch::Tensor& y, double max_norm = 0) {
    optimizer->zero_grad();
    auto loss = loss_of(net, x, y);
    loss.backward();
    if (max_norm > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), max_norm);
    optimizer->step();
    return loss.detach();
  }
  Net net{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

inline std::vector<torch::Tensor> state_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> tensors;
  for (const auto& p : module.parameters()) tensors.push_back(p.detach().clone());
  for (const auto& b : module.buffers()) tensors.push_back(b.detach().clone());
  return tensors;
}

inline void expect_same_bits(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& expected, const std::string& what = "") {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << what << " tensor " << i;
}

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace hfta::test
