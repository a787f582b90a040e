#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hfta::python {

void bind_steps(pybind11::module_& m);

}  // namespace hfta::python
