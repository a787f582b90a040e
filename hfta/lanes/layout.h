#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hfta::lanes {

/// One name under which a module registers a tensor.
struct Registration {
  std::string name;          ///< Dotted, as in the state dict.
  bool is_parameter = true;  ///< Else a buffer.
  std::size_t index = 0;     ///< Into the parameters or the buffers; tied names have the same index.
};

/// A module's tensors, each once, and the names it has for them in the order of Python's `state_dict()`.
struct ModuleTensors {
  std::vector<Registration> registrations;
  std::vector<at::Tensor> parameters, buffers;
  const at::Tensor& at(bool parameter, std::size_t index) const { return (parameter ? parameters : buffers)[index]; }
  /// Further tensor objects over the memory of a parameter or buffer (registered through `detach()`); they move with it.
  struct Alias {
    bool of_parameter;
    std::size_t index;
    at::Tensor tensor;
  };
  std::vector<Alias> aliases;
  std::vector<const c10::TensorImpl*> objects;  ///< The tensor objects by registration.
};

/// Undefined tensors (a bias that is switched off) are left out.
/// @throws Unsupported for tensors that cannot be rows (sparse, quantized, overlapping views), naming them after `lane`.
ModuleTensors tensors_of(const torch::nn::Module& module, std::int64_t lane);

/// Whether the module still registers the very objects that it did; costs less than collecting them.
bool is_registered_as(const torch::nn::Module& module, const ModuleTensors& tensors);

/// Names of tensors whose memory is also looked at by objects that the module does not register (`weight_t = weight.t()`), which a
/// move of the memory leaves behind.
std::vector<std::string> held_elsewhere(const ModuleTensors& tensors);

/// Which buffers belong to frozen parts: the smallest part around one that has parameters trains none of them.
std::vector<bool> buffers_of_frozen_parts(const ModuleTensors& tensors);

/// First name of each parameter (or buffer), by index.
std::vector<std::string> first_names(const ModuleTensors& tensors, bool parameters);

/// @throws InvalidArgument naming the first difference between a lane's tensors and lane 0's.
void check_same_layout(const ModuleTensors& expected, const ModuleTensors& got, std::int64_t lane);

}  // namespace hfta::lanes
