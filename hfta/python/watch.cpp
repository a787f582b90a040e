#include "hfta/python/watch.h"

namespace hfta::python {
namespace {

bool is_plain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

/// A number that is another one after each change of the dict; 0 where this Python has none.
std::uint64_t version_of([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
  return 0;
#endif
}

py::list list_at(const py::tuple& found, std::size_t index) { return py::cast<py::list>(found[index]); }

}  // namespace

const std::string& Watch::context() {
  if (!found_ || !is_same()) collect();
  return context_;
}

bool Watch::is_same() {
  for (const auto& [cell, value] : cells_)
    if (PyCell_GET(cell) != value) return false;
  for (const auto& [dict, name, value] : entries_)
    if (PyDict_GetItem(dict, name) != value) return false;
  for (const auto& [container, copy] : mutables_)
    if (PyObject_RichCompareBool(container, copy, Py_EQ) != 1) return PyErr_Clear(), false;
  for (auto& [dict, version, values] : attributes_) {
    const auto now = version_of(dict);
    if (now && now == version) continue;
    for (const auto& [name, value] : values)
      if (PyDict_GetItem(dict, name) != value) return false;
    version = now;
  }
  return true;
}

void Watch::collect() {
  const auto found = py::cast<py::tuple>(collect_.get()());
  cells_.clear();
  entries_.clear();
  attributes_.clear();
  mutables_.clear();
  values_.clear();
  const auto keep = [&](PyObject* value) {
    if (value) values_.emplace_back(py::reinterpret_borrow<py::object>(value));
    return value;
  };
  for (const auto& cell : list_at(found, 0)) cells_.push_back({cell.ptr(), keep(PyCell_GET(cell.ptr()))});
  for (const auto& entry : list_at(found, 1)) {
    auto* dict = PyTuple_GetItem(entry.ptr(), 0);
    auto* name = PyTuple_GetItem(entry.ptr(), 1);
    entries_.push_back({dict, name, keep(PyDict_GetItem(dict, name))});
  }
  for (const auto& dict : list_at(found, 2)) {
    Attributes attributes{dict.ptr(), version_of(dict.ptr()), {}};
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict.ptr(), &at, &name, &value))
      if (is_plain(value)) attributes.values.emplace_back(keep(name), keep(value));
    attributes_.push_back(std::move(attributes));
  }
  for (const auto& pair : list_at(found, 3)) mutables_.emplace_back(PyTuple_GetItem(pair.ptr(), 0), PyTuple_GetItem(pair.ptr(), 1));
  if (!known_) known_ = Held(py::dict());
  const auto known = py::reinterpret_borrow<py::dict>(known_.get());
  if (!known.contains(found[4])) known[found[4]] = keys_++;
  context_ = "#" + py::cast<std::string>(py::str(known[found[4]]));
  found_ = Held(found);
}

}  // namespace hfta::python
