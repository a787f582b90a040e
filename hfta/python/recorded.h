#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "hfta/python/interpreter.h"
#include "hfta/python/lane_code.h"
#include "hfta/python/watch.h"
#include "hfta/train/recorded_function.h"

namespace hfta::python {

/// Runs the library without the interpreter's lock. An operator's refusal that passed through Python comes out as what it is.
template <typename Body>
auto unlocked(Body&& body) {
  const RefusalScope refusal;
  const py::gil_scoped_release without_lock;
  try {
    return body();
  } catch (...) {
    RefusalScope::rethrow();
    throw;
  }
}

inline std::span<PyObject* const> arguments_of(const py::tuple& args) {
  return {&PyTuple_GET_ITEM(args.ptr(), 0), static_cast<std::size_t>(PyTuple_GET_SIZE(args.ptr()))};
}

inline std::shared_ptr<LaneCode> code_of(py::object fn, std::vector<ArrayPtr> arrays) { return std::make_shared<LaneCode>(std::move(fn), std::move(arrays)); }

inline train::LaneStep lane_step(const std::shared_ptr<LaneCode>& code) {
  return [code](std::int64_t lane, std::span<const at::Tensor> inputs) { return code->step(lane, inputs); };
}

/// A call's turn on its arrays. Taken with the interpreter's lock, which is given up meanwhile: who has the turn may need it.
class Turn {
 public:
  /// @param between_steps the name of a call that changes arrays, or trains them; empty where it does neither.
  /// @param runs_code whether it runs the user's function, from where arrays must not be changed.
  /// @throws as `check_between_steps`.
  explicit Turn(const std::vector<ArrayPtr>& arrays, const std::string& between_steps = {}, bool runs_code = true);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// @throws InvalidArgument inside the user's function: what changes arrays, or trains them, is called between steps.
  static void check_between_steps(const std::string& who);

 private:
  std::vector<ArrayPtr> arrays_;
  std::vector<std::unique_lock<std::recursive_mutex>> locks_;
  bool runs_code_;
};

/// A turn as Python's `with` statement, for what changes arrays.
class Alone {
 public:
  Alone(std::vector<ArrayPtr> arrays, std::string who) : arrays_(std::move(arrays)), who_(std::move(who)) {}
  void enter();
  void exit() { turn_.reset(); }

 private:
  std::vector<ArrayPtr> arrays_;
  std::string who_;
  std::unique_ptr<Turn> turn_;
};

/// What recorded functions of all kinds have in common.
class Recorded {
 public:
  Recorded(py::object fn, std::vector<ArrayPtr> arrays, py::object collect, py::object name_captured, bool freeze_captured, std::size_t limit);

 protected:
  /// Before each call, with the lock.
  /// @throws Unsupported where the Python values that the function reads are others at each call, or this process was forked from the one that recorded.
  void look(const Inputs& inputs);

  pid_t process_;
  std::shared_ptr<std::string> context_ = std::make_shared<std::string>();
  std::shared_ptr<LaneCode> code_;
  std::shared_ptr<Watch> watch_;
  Held name_captured_;
  train::RecordOptions options_;
};

/// The recorded training step.
void bind_recorded_step(py::module_& m);

}  // namespace hfta::python
