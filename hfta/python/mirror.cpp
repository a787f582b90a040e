#include "hfta/python/mirror.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "hfta/base/error.h"

namespace hfta::python {
namespace {

std::string text_of(py::handle object) { return py::cast<std::string>(py::str(object)); }

[[noreturn]] void refuse_change(std::int64_t lane, const std::string& what) {
  throw InvalidArgument(base::message("hfta::Array: expected lane ", lane, " with the tensors that it had when it was fused, got ", what));
}

}  // namespace

std::shared_ptr<Mirror> Mirror::of(py::handle module, std::int64_t lane) {
  Known known;
  std::vector<Registry> registries;
  auto root = build(module, "", lane, known, registries);
  root->registries_ = std::move(registries);
  root->python_ = Held(py::weakref(module));
  return root;
}

std::shared_ptr<Mirror> Mirror::build(py::handle module, const std::string& prefix, std::int64_t lane, Known& known, std::vector<Registry>& registries) {
  if (const auto found = known.find(module.ptr()); found != known.end()) return found->second;
  const std::shared_ptr<Mirror> mirror(new Mirror(text_of(py::type::handle_of(module).attr("__name__"))));
  known.emplace(module.ptr(), mirror);
  mirror->add_tensors(module, "_parameters", prefix, lane, registries);
  mirror->add_tensors(module, "_buffers", prefix, lane, registries);
  for (const auto& item : module.attr("_modules").attr("items")()) {
    const auto entry = py::cast<py::tuple>(item);
    if (entry[1].is_none()) continue;
    const auto name = text_of(entry[0]);
    mirror->register_module(name, build(entry[1], prefix + name + ".", lane, known, registries));
  }
  mirror->torch::nn::Module::train(py::cast<bool>(module.attr("training")));
  return mirror;
}

void Mirror::add_tensors(py::handle module, const char* attribute, const std::string& prefix, std::int64_t lane, std::vector<Registry>& registries) {
  const bool is_parameters = attribute == std::string("_parameters");
  Registry registry{.dict = Held(module.attr(attribute)), .prefix = prefix, .is_parameters = is_parameters, .tensors = {}};
  for (const auto& item : registry.dict.get().attr("items")()) {
    const auto entry = py::cast<py::tuple>(item);
    const auto name = text_of(entry[0]);
    at::Tensor tensor;
    if (!entry[1].is_none()) {
      HFTA_CHECK(THPVariable_Check(entry[1].ptr()), "hfta::Array: expected tensors, got ", text_of(py::type::handle_of(entry[1])), " as \"", prefix, name, "\" of lane ", lane);
      const bool lazy = py::hasattr(entry[1], "materialize");
      HFTA_CHECK(!lazy, "hfta::Array: expected modules whose tensors have their shapes, got \"", prefix, name, "\" of lane ", lane,
                 " not yet initialized: run a lazy module once before");
      tensor = THPVariable_Unpack(entry[1].ptr());
      if (is_parameters) register_parameter(name, tensor, tensor.requires_grad());
      else register_buffer(name, tensor);
    }
    registry.tensors.emplace_back(Held(py::reinterpret_borrow<py::object>(entry[0])), tensor);
  }
  if (PyDict_Check(registry.dict.get().ptr())) registries.push_back(std::move(registry));
}

void Mirror::train(bool on) {
  torch::nn::Module::train(on);
  if (!python_) return;
  const py::gil_scoped_acquire lock;
  const auto module = python_.get()();
  if (!module.is_none()) module.attr("train")(on);
}

void Mirror::take_back_rebound(std::int64_t lane) {
  for (const auto& registry : registries_) {
    auto* dict = registry.dict.get().ptr();
    std::size_t defined = 0;
    for (const auto& [key, tensor] : registry.tensors) {
      auto* now = PyDict_GetItem(dict, key.get().ptr());
      const bool is_tensor = now && THPVariable_Check(now);
      defined += is_tensor || (now && now == Py_None);
      if (is_tensor && tensor.defined() && THPVariable_Unpack(now).is_same(tensor)) continue;
      if (!tensor.defined() && now == Py_None) continue;
      const auto name = base::message(registry.is_parameters ? "parameter \"" : "buffer \"", registry.prefix, text_of(key.get()), '"');
      if (!is_tensor) refuse_change(lane, name + (tensor.defined() ? " removed" : " changed"));
      if (!tensor.defined()) refuse_change(lane, name + " set, which was None");
      if (registry.is_parameters) refuse_change(lane, name + " replaced by another object");
      const at::NoGradGuard no_grad;
      at::Tensor(tensor).set_data(THPVariable_Unpack(now).detach());
      const py::object registered = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
      PyDict_SetItem(dict, key.get().ptr(), registered.ptr());
    }
    if (defined == registry.tensors.size() && static_cast<std::size_t>(PyDict_Size(dict)) == defined) continue;
    for (const auto& item : py::reinterpret_borrow<py::dict>(dict)) {
      bool known = false;
      for (const auto& entry : registry.tensors) known |= entry.first.get().equal(item.first);
      if (!known) refuse_change(lane, base::message("a new one, \"", registry.prefix, text_of(item.first), '"'));
    }
  }
}

}  // namespace hfta::python
