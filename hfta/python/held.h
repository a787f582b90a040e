#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace hfta::python {

namespace py = pybind11;

/// A Python object that C++ keeps: may be copied and dropped on any thread without the interpreter's lock, also when the interpreter is gone.
class Held {
 public:
  Held() = default;
  explicit Held(py::object object) : object_(object.release().ptr(), [](PyObject* p) { drop(p); }) {}

  explicit operator bool() const { return object_ != nullptr; }
  /// Needs the lock.
  py::handle get() const { return object_.get(); }

 private:
  static void drop(PyObject* object) {
    if (!object || !Py_IsInitialized()) return;
#if PY_VERSION_HEX >= 0x030D0000
    if (Py_IsFinalizing()) return;
#else
    if (_Py_IsFinalizing()) return;
#endif
    const py::gil_scoped_acquire lock;
    Py_DECREF(object);
  }
  std::shared_ptr<PyObject> object_;
};

}  // namespace hfta::python
