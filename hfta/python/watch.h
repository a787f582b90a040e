#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hfta/python/held.h"

namespace hfta::python {

/// Notices that Python values which a recorded function reads are others now: closure cells, globals, and attributes of modules and objects.
///
/// Looking costs a comparison of pointers per value and one of versions per object; the values themselves are read again only after a change.
class Watch {
 public:
  /// @param collect returns `(cells, entries, dicts, mutables, key)`: closure cells; pairs of a dict and a name; dicts of attributes; pairs of a
  /// container and a copy of it; and a hashable text of all plain values.
  explicit Watch(py::object collect) : collect_(std::move(collect)) {}

  /// A text that is the same for the same values. Needs the lock.
  const std::string& context();
  /// How many different values there were.
  std::size_t contexts() const { return keys_; }

 private:
  struct Cell {
    PyObject* cell;
    PyObject* value;
  };
  struct Entry {
    PyObject *dict, *name, *value;
  };
  struct Attributes {
    PyObject* dict;
    std::uint64_t version;
    std::vector<std::pair<PyObject*, PyObject*>> values;  ///< Name and plain value.
  };
  bool is_same();
  void collect();

  Held collect_, found_, known_;  ///< `found_` keeps alive what the pointers point to.
  std::vector<Cell> cells_;
  std::vector<Entry> entries_;
  std::vector<Attributes> attributes_;
  std::vector<std::pair<PyObject*, PyObject*>> mutables_;
  std::vector<Held> values_;
  std::size_t keys_ = 0;
  std::string context_;
};

}  // namespace hfta::python
