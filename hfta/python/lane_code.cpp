#include "hfta/python/lane_code.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "hfta/base/error.h"
#include "hfta/python/interpreter.h"

namespace hfta::python {
namespace {

Held tree_functions;

py::object tree(const char* function) { return tree_functions.get().attr(function); }

std::string class_of(py::handle object) { return py::cast<std::string>(py::type::handle_of(object).attr("__name__")); }

py::object wrap(const at::Tensor& tensor) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)); }

py::list list_of(std::span<const at::Tensor> tensors) {
  py::list list(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) list[i] = wrap(tensors[i]);
  return list;
}

bool add_input(PyObject* object, std::vector<train::Input>& inputs) {
  static auto* const marked = reinterpret_cast<PyTypeObject*>(py::type::of<PerLane>().release().ptr());
  if (THPVariable_Check(object)) inputs.push_back({THPVariable_Unpack(object), false});
  else if (Py_TYPE(object) == marked) inputs.push_back({py::cast<const PerLane&>(py::handle(object)).tensor, true});
  else return false;
  return true;
}

}  // namespace

void use_trees_of(py::module_ module) { tree_functions = Held(std::move(module)); }

Inputs::Inputs(std::span<PyObject* const> arguments) {
  tensors.reserve(arguments.size());
  bool plain = true;
  for (auto* argument : arguments) plain = plain && add_input(argument, tensors);
  if (plain) return;
  tensors.clear();
  py::list list;
  for (auto* argument : arguments) list.append(py::handle(argument));
  const auto flat = py::cast<py::tuple>(tree("flatten_inputs")(list));
  for (const auto& leaf : py::cast<py::list>(flat[0])) add_input(leaf.ptr(), tensors);
  spec = Held(py::reinterpret_borrow<py::object>(flat[1]));
}

std::vector<lanes::ArrayBase*> LaneCode::arrays() const {
  std::vector<lanes::ArrayBase*> pointers;
  for (const auto& array : arrays_) pointers.push_back(array.get());
  return pointers;
}

py::object LaneCode::call(std::int64_t lane, std::span<const at::Tensor> inputs) const {
  c10::SmallVector<PyObject*, 12> arguments;
  std::vector<py::object> owned;
  for (const auto& array : arrays_) arguments.push_back(array->python_module(lane).ptr());
  if (input_spec_) {
    owned.push_back(tree("nest_inputs")(list_of(inputs), input_spec_.get()));
    for (const auto& argument : py::reinterpret_borrow<py::list>(owned.back())) arguments.push_back(argument.ptr());
  } else {
    for (const auto& input : inputs) arguments.push_back(owned.emplace_back(wrap(input)).ptr());
  }
  auto* result = PyObject_Vectorcall(function_.get().ptr(), arguments.data(), arguments.size(), nullptr);
  if (!result) {
    py::error_already_set error;
    RefusalScope::rethrow();
    throw error;
  }
  auto owned_result = py::reinterpret_steal<py::object>(result);
  RefusalScope::rethrow();
  for (const auto& array : arrays_) array->take_back_rebound(lane);
  return owned_result;
}

std::vector<at::Tensor> LaneCode::flatten(py::handle nested, std::int64_t lane) {
  const auto flat = py::cast<py::tuple>(tree("flatten_result")(nested));
  const py::object spec = flat[1];
  HFTA_CHECK(!called_ || (result_spec_ && spec.equal(result_spec_.get())), "hfta: expected results nested as lane 0's, got others from lane ", lane, ": ",
             py::cast<std::string>(py::str(spec)));
  called_ = true;
  result_spec_ = Held(spec);
  std::vector<at::Tensor> tensors;
  for (const auto& leaf : py::cast<py::list>(flat[0])) tensors.push_back(THPVariable_Unpack(leaf.ptr()));
  return tensors;
}

train::StepResult LaneCode::step(std::int64_t lane, std::span<const at::Tensor> inputs) {
  const py::gil_scoped_acquire lock;
  const auto result = call(lane, inputs);
  if (THPVariable_Check(result.ptr())) {
    HFTA_CHECK(!called_ || !result_spec_, "hfta: expected a loss and extras as from lane 0, got a loss alone from lane ", lane);
    called_ = true;
    return {THPVariable_Unpack(result.ptr()), {}};
  }
  const bool pair = PyTuple_Check(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) == 2 && THPVariable_Check(PyTuple_GET_ITEM(result.ptr(), 0));
  HFTA_CHECK(pair, "hfta: expected a loss or a pair (loss, extras) from lane ", lane, ", got ", class_of(result));
  return {THPVariable_Unpack(PyTuple_GET_ITEM(result.ptr(), 0)), flatten(PyTuple_GET_ITEM(result.ptr(), 1), lane)};
}

std::vector<at::Tensor> LaneCode::evaluate(std::int64_t lane, std::span<const at::Tensor> inputs) {
  const py::gil_scoped_acquire lock;
  const auto result = call(lane, inputs);
  if (!THPVariable_Check(result.ptr())) return flatten(result, lane);
  HFTA_CHECK(!called_ || !result_spec_, "hfta: expected results nested as lane 0's, got a single tensor from lane ", lane);
  called_ = true;
  return {THPVariable_Unpack(result.ptr())};
}

py::object LaneCode::refill(const std::vector<at::Tensor>& tensors) const { return tree("nest_result")(list_of(tensors), result_spec_.get()); }

py::object LaneCode::nest(const train::StepOutput& output) const {
  if (!result_spec_) return wrap(output.losses);
  return py::make_tuple(wrap(output.losses), refill(output.extras));
}

py::object LaneCode::nest(const std::vector<at::Tensor>& results) const { return result_spec_ ? refill(results) : wrap(results.at(0)); }

}  // namespace hfta::python
