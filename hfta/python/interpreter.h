#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hfta::python {

/// Makes interceptors' modes Python objects from now on, and has the interpreter's table hand their operators to them: once, at import.
/// @param mode_class a `TorchDispatchMode` subclass without arguments.  @param random told `begin()` and `end()` of each interceptor.
void install_modes(pybind11::object mode_class, pybind11::object random);

/// What random operators of this thread draw from where an interceptor says so; else undefined.
at::Generator current_generator();

/// While it stands, this thread runs the user's function with a recorder on. An operator's refusal passes through Python as a plain
/// `RuntimeError`, which user code may even catch; here it is kept.
class RefusalScope {
 public:
  RefusalScope();
  ~RefusalScope();
  RefusalScope(const RefusalScope&) = delete;
  RefusalScope& operator=(const RefusalScope&) = delete;
  /// Throws the first refusal since the scope began, if there was one.
  static void rethrow();
};

}  // namespace hfta::python
