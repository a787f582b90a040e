#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hfta/python/held.h"

namespace hfta::python {

/// A `torch.nn.Module` of Python as a C++ module: the same tree, the same tensor objects. Holds the tensors, not the Python module.
///
/// Submodules that are registered twice are one module, tied tensors one tensor.
class Mirror final : public torch::nn::Module {
 public:
  /// Needs the interpreter's lock. @throws InvalidArgument where a registered tensor has no memory yet (lazy modules), naming it.
  static std::shared_ptr<Mirror> of(py::handle module, std::int64_t lane);

  /// Puts the Python module in that mode too, where it is alive.
  void train(bool on) override;

  /// Whether the Python modules still register the very tensors that they did. What user code rebound (`self.ema = 0.9 * self.ema`) is
  /// bound to the registered tensor again, which takes over the new memory, so that the array notices. Needs the lock.
  /// @throws InvalidArgument for a new, removed or replaced parameter and for a new or removed buffer, naming it.
  void take_back_rebound(std::int64_t lane);

 private:
  struct Registry {      ///< One module's `_parameters` or `_buffers`.
    Held dict;
    std::string prefix;  ///< Dotted.
    bool is_parameters;
    std::vector<std::pair<Held, at::Tensor>> tensors;  ///< Key and tensor, in order; undefined for None.
  };
  using Known = std::map<PyObject*, std::shared_ptr<Mirror>>;

  explicit Mirror(const std::string& name) : torch::nn::Module(name) {}
  static std::shared_ptr<Mirror> build(py::handle module, const std::string& prefix, std::int64_t lane, Known& known, std::vector<Registry>& registries);
  void add_tensors(py::handle module, const char* attribute, const std::string& prefix, std::int64_t lane, std::vector<Registry>& registries);

  Held python_;  ///< Of the root: a weak reference.
  std::vector<Registry> registries_;
};

}  // namespace hfta::python
