#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hfta::python {

/// Spaces, samplers and studies: what the package's sweep is made of.
void bind_tuning(pybind11::module_& m);

}  // namespace hfta::python
