#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>

#include <variant>
#include <vector>

#include "hfta/optim/per_lane.h"

namespace hfta::python {

namespace py = pybind11;

/// State dicts, between the library and Python: dicts, lists, tuples, tensors, numbers, text, None.
py::object to_python(const c10::IValue& value);
/// @throws InvalidArgument for any other kind of object, naming its class.
c10::IValue from_python(py::handle object);

/// A hyper-parameter as the Python side has prepared it.
using Numbers = std::variant<double, std::vector<double>>;
inline optim::PerLane per_lane_of(const Numbers& numbers) {
  return std::visit([](const auto& value) { return optim::PerLane(value); }, numbers);
}

}  // namespace hfta::python
