#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

#include "hfta/optim/optimizer.h"
#include "hfta/python/arrays.h"

namespace hfta::python {

/// An optimizer and the array that it must not outlive.
struct OptimizerOfArray {
  ArrayPtr array;
  std::unique_ptr<optim::Optimizer> optimizer;
};
using OptimizerPtr = std::shared_ptr<OptimizerOfArray>;

void bind_optimizers(py::module_& m);

}  // namespace hfta::python
