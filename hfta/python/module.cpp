#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "hfta/base/error.h"
#include "hfta/base/version.h"
#include "hfta/python/arrays.h"
#include "hfta/python/interpreter.h"
#include "hfta/python/lane_code.h"
#include "hfta/python/optimizers.h"
#include "hfta/python/steps.h"
#include "hfta/python/tuning.h"

namespace hfta::python {
namespace {

struct ErrorClasses {
  PyObject *error, *invalid_argument, *unsupported;
};
ErrorClasses classes;

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const InvalidArgument& e) {
    PyErr_SetString(classes.invalid_argument, e.what());
  } catch (const Unsupported& e) {
    PyErr_SetString(classes.unsupported, e.what());
  } catch (const Error& e) {
    PyErr_SetString(classes.error, e.what());
  } catch (python_error& e) {
    e.restore();
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  }
}

}  // namespace
}  // namespace hfta::python

PYBIND11_MODULE(_core, m) {
  using namespace hfta::python;
  m.attr("version") = HFTA_VERSION;
  m.def("set_errors", [](const py::object& error, const py::object& invalid_argument, const py::object& unsupported) {
    classes = {error.inc_ref().ptr(), invalid_argument.inc_ref().ptr(), unsupported.inc_ref().ptr()};
    py::register_exception_translator(&translate);
  });
  m.def("install_modes", &install_modes);
  m.def("current_generator", []() -> std::optional<at::Generator> {
    const auto generator = current_generator();
    return generator.defined() ? std::optional(generator) : std::nullopt;
  });
  m.def("use_trees", [](const py::module_& tree) { use_trees_of(tree); });
  bind_arrays(m);
  bind_optimizers(m);
  bind_steps(m);
  bind_tuning(m);
}
