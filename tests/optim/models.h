#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "hfta/lanes/typed_array.h"
#include "hfta/optim/adadelta.h"
#include "hfta/optim/adam.h"
#include "hfta/optim/sgd.h"
#include "tests/support.h"

namespace hfta::test {

/// Odd sizes, a weight with other strides, a scalar, and a frozen parameter in the middle.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    first = register_module("first", torch::nn::Linear(7, 19));
    frozen = register_parameter("frozen", torch::randn({3}), /*requires_grad=*/false);
    turned = register_parameter("turned", torch::randn({5, 13}).t());
    scale = register_parameter("scale", torch::randn({}));
    wide = register_module("wide", torch::nn::Linear(torch::nn::LinearOptions(61, 17).bias(false)));
  }
  torch::nn::Linear first{nullptr}, wide{nullptr};
  torch::Tensor frozen, turned, scale;
};
TORCH_MODULE(OddNet);

inline Array<OddNet> odd_array(std::int64_t lanes, torch::ScalarType type = torch::kFloat) {
  return Array<OddNet>(lanes, [type](std::int64_t) {
    OddNet net;
    net->to(type);
    return net;
  });
}

/// Gradients `[lanes, ...]` of every trainable parameter, undefined for frozen ones.
inline std::vector<torch::Tensor> random_gradients(const lanes::ArrayBase& array) {
  std::vector<torch::Tensor> gradients;
  for (const auto& p : array.parameters()) gradients.push_back(p.trainable ? torch::randn_like(p.tensor.detach()) : torch::Tensor());
  return gradients;
}

/// Lanes `[first, first + width)` of each.
inline std::vector<torch::Tensor> lanes_of(const std::vector<torch::Tensor>& gradients, std::int64_t first, std::int64_t width) {
  std::vector<torch::Tensor> some;
  for (const auto& g : gradients) some.push_back(g.defined() ? g.narrow(0, first, width) : g);
  return some;
}

/// Copies of a lane's parameters: a model of its own.
inline std::vector<torch::Tensor> solo_parameters(const lanes::ArrayBase& array, std::int64_t lane) {
  std::vector<torch::Tensor> solo;
  for (const auto& p : array.lane_parameters(lane)) solo.push_back(p.detach().clone().set_requires_grad(p.requires_grad()));
  return solo;
}

/// Gives a lone model its lane's gradients.
inline void give_gradients(std::vector<torch::Tensor>& solo, const std::vector<torch::Tensor>& gradients, std::int64_t lane, double factor = 1) {
  for (std::size_t p = 0; p < solo.size(); ++p)
    if (gradients[p].defined()) solo[p].mutable_grad() = gradients[p].select(0, lane) * factor;
}

inline void update_in_groups(optim::Optimizer& optimizer, const std::vector<torch::Tensor>& gradients, std::int64_t width) {
  const auto lanes = optimizer.array().lanes();
  for (std::int64_t first = 0; first < lanes; first += width) {
    const auto count = std::min(width, lanes - first);
    optimizer.update(first, count, lanes_of(gradients, first, count));
  }
}

}  // namespace hfta::test
