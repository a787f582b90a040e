#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hfta/python/arrays.h"
#include "hfta/train/step.h"

namespace hfta::python {

/// Marks an input with a leading lane axis.
struct PerLane {
  at::Tensor tensor;
};

/// What helps with nested inputs and results: the package's `_tree` module.
void use_trees_of(py::module_ tree);

/// The inputs of a call: tensors and `PerLane`s, or nests of them.
struct Inputs {
  std::vector<train::Input> tensors;
  Held spec{};  ///< How they were nested; none where they were plain arguments.

  /// Needs the lock. @throws InvalidArgument for anything that is no tensor, naming its class.
  explicit Inputs(std::span<PyObject* const> arguments);
};

/// A Python function of the lanes' models and inputs, `fn(model, *inputs)`, as the library calls it.
class LaneCode {
 public:
  LaneCode(py::object function, std::vector<ArrayPtr> arrays) : function_(std::move(function)), arrays_(std::move(arrays)) {}

  /// How the next calls' inputs are nested. Needs the lock.
  void use(const Inputs& inputs) { input_spec_ = inputs.spec; }
  /// Loss and extras of a lane. @throws InvalidArgument where the function returns neither a tensor nor a pair `(loss, extras)`.
  train::StepResult step(std::int64_t lane, std::span<const at::Tensor> inputs);
  /// All tensors of what the function returns, nested as it may be.
  std::vector<at::Tensor> evaluate(std::int64_t lane, std::span<const at::Tensor> inputs);

  /// What the function would return for stacked tensors. Needs the lock.
  py::object nest(const train::StepOutput& output) const;
  py::object nest(const std::vector<at::Tensor>& results) const;

  std::vector<lanes::ArrayBase*> arrays() const;
  const std::vector<ArrayPtr>& array_pointers() const { return arrays_; }

 private:
  py::object call(std::int64_t lane, std::span<const at::Tensor> inputs) const;
  std::vector<at::Tensor> flatten(py::handle nested, std::int64_t lane);
  py::object refill(const std::vector<at::Tensor>& tensors) const;

  Held function_;
  std::vector<ArrayPtr> arrays_;
  Held input_spec_;
  bool called_ = false;
  Held result_spec_;  ///< None of it: a single tensor, or a loss alone.
};

}  // namespace hfta::python
