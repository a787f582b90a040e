#include "hfta/python/arrays.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include "hfta/base/error.h"
#include "hfta/lanes/state.h"
#include "hfta/optim/clip.h"
#include "hfta/python/convert.h"

namespace hfta::python {
namespace {

py::list stacks_of(ModuleArray& array, const std::vector<lanes::Stacked>& stacks) {
  array.settle();
  py::list list;
  for (const auto& stack : stacks) list.append(py::make_tuple(stack.name, stack.tensor, stack.trainable));
  return list;
}

at::Tensor clip(ModuleArray& array, const Numbers& max_norm) {
  const py::gil_scoped_release unlocked;
  array.stack_gradients();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : array.parameters()) gradients.push_back(parameter.tensor.grad());
  return optim::clip_gradients(gradients, per_lane_of(max_norm).of_lanes(array.lanes(), "hfta.clip_grad_norm_: max_norm"));
}

/// A lane's tensors that look at values which are stored once.
std::vector<at::Tensor> shared_of(ModuleArray& array, std::int64_t lane) {
  array.settle();
  std::vector<at::Tensor> tensors;
  for (std::size_t p = 0; p < array.parameters().size(); ++p)
    if (array.parameters()[p].shared.defined()) tensors.push_back(array.lane_parameters(lane)[p]);
  for (std::size_t b = 0; b < array.buffers().size(); ++b)
    if (array.buffers()[b].shared.defined()) tensors.push_back(array.lane_buffers(lane)[b]);
  return tensors;
}

std::int64_t shared_bytes(ModuleArray& array) {
  std::int64_t bytes = 0;
  for (const auto& tensor : shared_of(array, 0)) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

ModuleArray::Factory ModuleArray::factory(Held modules, Held build) {
  return [modules, build](std::int64_t lane) -> Module {
    const py::gil_scoped_acquire lock;
    const py::object module = build.get()(lane);
    auto mirror = Mirror::of(module, lane);
    py::reinterpret_borrow<py::list>(modules.get()).append(module);
    return mirror;
  };
}

void bind_arrays(py::module_& m) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<ModuleArray, ArrayPtr>(m, "Array")
      .def(py::init([](const py::list& modules, const py::object& build, std::vector<std::uint64_t> seeds) {
             Held list(modules), builder(build);
             const py::gil_scoped_release without_lock;
             return std::make_shared<ModuleArray>(std::move(list), std::move(builder), std::move(seeds));
           }),
           py::arg("modules"), py::arg("build"), py::arg("seeds"))
      .def_property_readonly("lanes", &ModuleArray::lanes)
      .def_property_readonly("seeds", &ModuleArray::seeds)
      .def_property_readonly("generation", &ModuleArray::generation)
      .def_property_readonly("device", [](const ModuleArray& array) { return array.device().str(); })
      .def("parameters", [](ModuleArray& array) { return stacks_of(array, array.parameters()); })
      .def("buffers", [](ModuleArray& array) { return stacks_of(array, array.buffers()); })
      .def("train", &ModuleArray::train, unlocked, py::arg("on"))
      .def("is_training", &ModuleArray::is_training)
      .def("to_device", [](ModuleArray& array, const std::string& device) { array.to(c10::Device(device)); }, unlocked, py::arg("device"))
      .def("to_type", [](ModuleArray& array, at::ScalarType type) { array.to(type); }, unlocked, py::arg("type"))
      .def("keep", &ModuleArray::keep, unlocked, py::arg("lanes"))
      .def("append",
           [](ModuleArray& array, const py::object& build, const std::vector<std::uint64_t>& seeds) {
             Held builder(build);
             const py::gil_scoped_release without_lock;
             array.append(builder, seeds);
           },
           py::arg("build"), py::arg("seeds"))
      .def("copy_lane", &ModuleArray::copy_lane, unlocked, py::arg("source"), py::arg("target"))
      .def("stack_gradients", &ModuleArray::stack_gradients, unlocked)
      .def("zero_grad", &ModuleArray::zero_grad, unlocked)
      .def("take_back_rebound", &ModuleArray::take_back_rebound, py::arg("lane"))
      .def("restore_rows", &ModuleArray::restore_rows, py::arg("lane"))
      .def("lane_parameters", [](const ModuleArray& array, std::int64_t lane) { return array.lane_parameters(lane); }, py::arg("lane"))
      .def("lane_buffers", [](const ModuleArray& array, std::int64_t lane) { return array.lane_buffers(lane); }, py::arg("lane"))
      .def("settle", &ModuleArray::settle, unlocked)
      .def("lane_shared", &shared_of, py::arg("lane"))
      .def_property_readonly("shared_bytes", &shared_bytes)
      .def("generator_state", [](ModuleArray& array, std::int64_t lane) { return array.generator(lane).get_state(); }, py::arg("lane"))
      .def("set_generator_state", [](ModuleArray& array, std::int64_t lane, const at::Tensor& state) { array.generator(lane).set_state(state); },
           py::arg("lane"), py::arg("state"))
      .def("state_dict", [](ModuleArray& array) { return to_python(lanes::array_state(array)); })
      .def("load_state_dict",
           [](ModuleArray& array, const py::object& state) {
             const auto value = from_python(state);
             const py::gil_scoped_release without_lock;
             lanes::load_array_state(array, value);
           },
           py::arg("state"));
  m.def("clip_gradients", &clip, py::arg("array"), py::arg("max_norm"));
}

}  // namespace hfta::python
