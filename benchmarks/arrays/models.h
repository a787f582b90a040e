#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace hfta::bench {

/// A model and the shape of its training: the same in `workloads.py`, which the Python ways run.
struct Workload {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  std::function<at::Tensor(torch::nn::Module&, const at::Tensor&)> forward;
  /// Inputs `[batch, ...]` and labels `[batch]`, drawn from the process's default generator.
  std::function<std::pair<at::Tensor, at::Tensor>(std::int64_t batch)> draw;
};

/// @throws InvalidArgument for an unknown name, listing the known ones.
const Workload& workload(const std::string& name);

}  // namespace hfta::bench
