#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "hfta/base/generator.h"
#include "hfta/program/executable.h"
#include "hfta/program/passes.h"
#include "hfta/program/recorder.h"

namespace hfta::test {

using program::Executable;
using program::Program;
using program::Recorder;
using program::Recording;

/// One plain module whose step is recorded and replayed on other data: results are the loss and each parameter's gradient.
template <typename Net>
struct Solo {
  Net net;
  std::function<at::Tensor(Net&, const std::vector<at::Tensor>&)> loss;
  at::Generator generator = base::seeded_generator(0);

  std::vector<at::Tensor> state() const {
    auto tensors = net->parameters();
    for (const auto& buffer : net->buffers()) tensors.push_back(buffer);
    return tensors;
  }

  Recording record(const std::vector<at::Tensor>& inputs) {
    program::RecordOptions options;
    const auto tensors = state();
    for (std::size_t k = 0; k < tensors.size(); ++k) options.regions.push_back({tensors[k].detach(), program::Origin::State, static_cast<std::int64_t>(k)});
    std::vector<at::Tensor> copies;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      copies.push_back(inputs[k].clone());
      options.regions.push_back({copies.back(), program::Origin::Input, static_cast<std::int64_t>(k)});
    }
    options.generators = {generator};
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    Recorder recorder(std::move(options));
    at::Tensor value;
    recorder.run([&] {
      value = loss(net, copies);
      value.backward();
    });
    recorder.add_result(value);
    for (const auto& p : net->parameters()) recorder.add_result(p.grad());
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    return recorder.finish();
  }

  std::vector<at::Tensor> plain(const std::vector<at::Tensor>& inputs) {
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    const base::DefaultGeneratorScope scope(generator);
    auto value = loss(net, inputs);
    value.backward();
    std::vector<at::Tensor> results{value.detach()};
    for (auto& p : net->parameters()) {
      results.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
      p.mutable_grad() = at::Tensor();
    }
    return results;
  }

  void bind(Executable& executable, const std::vector<at::Tensor>& inputs) {
    program::Binding binding;
    for (const auto& tensor : state()) binding.state.push_back(tensor.detach());
    binding.inputs = inputs;
    binding.generators = {generator};
    executable.bind(binding);
  }
};

inline Executable executable_of(Program program) {
  return Executable(program::simplified(std::move(program)), std::make_shared<program::Arena>(c10::Device(c10::kCPU)));
}

}  // namespace hfta::test
