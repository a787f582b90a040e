#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/python/held.h"
#include "hfta/python/mirror.h"

namespace hfta::python {

/// An array whose lanes are Python's modules. The list of these belongs to the Python object; it is brought in line there.
class ModuleArray final : public lanes::ArrayBase {
 public:
  /// @param modules filled with what `build(lane)` returns.  Without the interpreter's lock.
  ModuleArray(Held modules, Held build, std::vector<std::uint64_t> seeds) : ArrayBase(factory(modules, build), std::move(seeds)), modules_(modules) {}

  using ArrayBase::append;
  void append(Held build, const std::vector<std::uint64_t>& seeds) { append(factory(modules_, build), seeds); }
  /// The lane's Python module. Needs the lock.
  py::handle python_module(std::int64_t lane) const { return PyList_GetItem(modules_.get().ptr(), lane); }
  /// Needs the lock.
  void take_back_rebound(std::int64_t lane) { static_cast<Mirror&>(*module(lane)).take_back_rebound(lane); }
  /// Held by whatever runs the lanes: calls of several threads take turns.
  std::recursive_mutex& turn() { return turn_; }

 private:
  static Factory factory(Held modules, Held build);
  Held modules_;
  std::recursive_mutex turn_;
};

using ArrayPtr = std::shared_ptr<ModuleArray>;

void bind_arrays(py::module_& m);

}  // namespace hfta::python
