#include "hfta/python/convert.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>

#include "hfta/base/error.h"

namespace hfta::python {

py::object to_python(const c10::IValue& value) {
  if (value.isNone()) return py::none();
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isBool()) return py::bool_(value.toBool());
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isString()) return py::str(value.toStringRef());
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    py::tuple tuple(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) tuple[i] = to_python(elements[i]);
    return tuple;
  }
  if (value.isList()) {
    py::list list;
    for (const c10::IValue& element : value.toListRef()) list.append(to_python(element));
    return list;
  }
  TORCH_INTERNAL_ASSERT(value.isGenericDict(), "state dicts hold no ", value.tagKind());
  py::dict dict;
  for (const auto& entry : value.toGenericDict()) dict[to_python(entry.key())] = to_python(entry.value());
  return dict;
}

c10::IValue from_python(py::handle object) {
  auto* o = object.ptr();
  if (object.is_none()) return {};
  if (THPVariable_Check(o)) return THPVariable_Unpack(o);
  if (PyBool_Check(o)) return o == Py_True;
  if (PyLong_Check(o)) return py::cast<std::int64_t>(object);
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (PyUnicode_Check(o)) return py::cast<std::string>(object);
  if (PyTuple_Check(o)) {
    std::vector<c10::IValue> elements;
    for (const auto& element : py::reinterpret_borrow<py::tuple>(object)) elements.push_back(from_python(element));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (PyList_Check(o)) {
    c10::impl::GenericList list(c10::AnyType::get());
    for (const auto& element : py::reinterpret_borrow<py::list>(object)) list.push_back(from_python(element));
    return list;
  }
  HFTA_CHECK(PyDict_Check(o), "hfta: expected a state of dicts, lists, tuples, tensors, numbers and text, got ",
             py::cast<std::string>(py::type::handle_of(object).attr("__name__")));
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& entry : py::reinterpret_borrow<py::dict>(object)) dict.insert(from_python(entry.first), from_python(entry.second));
  return dict;
}

}  // namespace hfta::python
