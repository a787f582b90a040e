#include "hfta/python/recorded.h"

#include <ATen/autocast_mode.h>
#include <unistd.h>

#include <algorithm>

#include "hfta/base/error.h"

namespace hfta::python {
namespace {

constexpr std::size_t kMostContexts = 8;  // A value that changes at every step would be recorded at every step.

thread_local int calls_of_code = 0;  // of this thread, that may run the user's function

}  // namespace

Turn::Turn(const std::vector<ArrayPtr>& arrays, const std::string& between_steps, bool runs_code) : arrays_(arrays), runs_code_(runs_code) {
  if (!between_steps.empty()) check_between_steps(between_steps);
  std::sort(arrays_.begin(), arrays_.end());
  arrays_.erase(std::unique(arrays_.begin(), arrays_.end()), arrays_.end());
  const py::gil_scoped_release without_lock;
  for (const auto& array : arrays_) locks_.emplace_back(array->turn());
  calls_of_code += runs_code_;
}

Turn::~Turn() { calls_of_code -= runs_code_; }

void Turn::check_between_steps(const std::string& who) {
  HFTA_CHECK(calls_of_code == 0, who, ": expected a call between steps, got one inside the function that a step runs");
}

void Alone::enter() {
  turn_ = std::make_unique<Turn>(arrays_, who_, /*runs_code=*/false);
}

Recorded::Recorded(py::object fn, std::vector<ArrayPtr> arrays, py::object collect, py::object name_captured, bool freeze_captured, std::size_t limit)
    : process_(getpid()), code_(code_of(std::move(fn), std::move(arrays))), watch_(std::make_shared<Watch>(std::move(collect))), name_captured_(std::move(name_captured)) {
  options_.freeze_captured = freeze_captured;
  options_.limit = limit;
  options_.context = [context = context_] { return *context; };
  options_.name_captured = [name = name_captured_](const at::Tensor& tensor) {
    const py::gil_scoped_acquire lock;
    return py::cast<std::string>(name.get()(tensor));
  };
}

void Recorded::look(const Inputs& inputs) {
  // Its workers are the parent's threads.
  if (getpid() != process_) throw Unsupported("hfta.record: expected calls by the process that made the recorded function, got one by a process forked from it: record anew there");
  code_->use(inputs);
  *context_ = watch_->context();
  for (const auto device : {at::kCPU, at::kCUDA})
    if (at::autocast::is_autocast_enabled(device)) *context_ += base::message(' ', device, at::autocast::get_autocast_dtype(device));
  if (inputs.spec) *context_ += py::cast<std::string>(py::str(inputs.spec.get()));
  if (watch_->contexts() > kMostContexts)
    throw Unsupported(base::message("train::record: expected Python values that stay as they are, or change now and then, got ", watch_->contexts(),
                                    " different ones in as many calls", py::cast<std::string>(name_captured_.get()(py::none()))));
}

}  // namespace hfta::python
