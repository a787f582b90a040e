#include "hfta/python/interpreter.h"

#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/program/intercept.h"

namespace hfta::python {
namespace {

namespace py = pybind11;
using program::Interceptor;
using Interpreter = c10::impl::PyInterpreter;
using VTable = c10::impl::PyInterpreterVTable;
using ModeStack = c10::impl::TorchDispatchModeTLS;

/// Which of the modes on LibTorch's stack are ours. Python code takes modes off the stack and puts them back as other C++ objects,
/// so they are told by the Python object.
class Modes final : public program::ModeSource {
 public:
  Modes(py::object mode_class, py::object random) : class_(mode_class.release().ptr()), random_(random.release().ptr()) {}

  std::shared_ptr<Mode> make(Interceptor& interceptor) override {
    const py::gil_scoped_acquire lock;
    py::object object = py::handle(class_)();
    py::handle(random_).attr("begin")();
    {
      const std::unique_lock guard(mutex_);
      ours_[object.ptr()] = &interceptor;
    }
    return std::make_shared<Mode>(object.release().ptr(), getPyInterpreter());
  }

  void forget(const Mode& mode) override {
    {
      const std::unique_lock guard(mutex_);
      ours_.erase(mode.ptr(getPyInterpreter()));
    }
    const py::gil_scoped_acquire lock;
    const py::error_scope keep_error;
    py::handle(random_).attr("end")();
  }

  /// The interceptor of the thread's top mode, if that is ours.
  Interceptor* top() const {
    const auto depth = ModeStack::stack_len();
    return depth == 0 ? nullptr : at(depth - 1);
  }

  /// The interceptor at that depth of the thread's stack, if that mode is ours.
  Interceptor* at(std::int64_t depth) const {
    const auto* object = ModeStack::get_stack_at(depth)->ptr(getPyInterpreter());
    const std::shared_lock guard(mutex_);
    const auto found = ours_.find(object);
    return found == ours_.end() ? nullptr : found->second;
  }

 private:
  PyObject *class_, *random_;  // live as long as the process
  mutable std::shared_mutex mutex_;
  std::unordered_map<const PyObject*, Interceptor*> ours_;
};

Modes* modes = nullptr;
thread_local int refusal_scopes = 0;
thread_local std::exception_ptr refusal;

/// The interpreter's own table, but for what our modes see.
class Table final : public VTable {
 public:
  Table(const VTable& real, const Modes& modes) : real_(real), modes_(modes) {}

  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    auto* interceptor = modes_.top();
    if (!interceptor) return real_.dispatch(op, stack);
    try {
      program::dispatch_to(*interceptor, op, *stack);
    } catch (const Error&) {
      if (refusal_scopes > 0 && !refusal) refusal = std::current_exception();
      throw;
    }
  }
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl* self) const override {
    return modes_.top() ? program::detach_below_mode(*self) : real_.detach(self);
  }

  std::string name() const override { return real_.name(); }
  void incref(PyObject* object) const override { real_.incref(object); }
  void decref(PyObject* object) const override { real_.decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override { return real_.try_incref(slot); }
  size_t refcnt(PyObject* object) const override { return real_.refcnt(object); }
  void reportErrorCallback(PyObject* callback, c10::DispatchKey key) const override { real_.reportErrorCallback(callback, key); }
  void python_op_registration_trampoline(const c10::OperatorHandle& op, c10::DispatchKey key, c10::DispatchKeySet keys, torch::jit::Stack* stack,
                                         bool with_keyset, bool with_op) const override {
    real_.python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string op, const char* module, const char* context) const override {
    real_.throw_abstract_impl_not_imported_error(std::move(op), module, context);
  }
  void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const override {
    real_.python_dispatcher(op, keys, stack);
  }
  void reset_backward_hooks(const c10::TensorImpl* self) const override { real_.reset_backward_hooks(self); }
  bool is_contiguous(const c10::TensorImpl* self, at::MemoryFormat format) const override { return real_.is_contiguous(self, format); }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl* self, at::MemoryFormat format) const override { return real_.sym_is_contiguous(self, format); }
  bool is_strides_like(const c10::TensorImpl* self, at::MemoryFormat format) const override { return real_.is_strides_like(self, format); }
  bool is_non_overlapping_and_dense(const c10::TensorImpl* self) const override { return real_.is_non_overlapping_and_dense(self); }
  c10::Device device(const c10::TensorImpl* self) const override { return real_.device(self); }
  int64_t dim(const c10::TensorImpl* self) const override { return real_.dim(self); }
  c10::IntArrayRef strides(const c10::TensorImpl* self) const override { return real_.strides(self); }
  c10::IntArrayRef sizes(const c10::TensorImpl* self) const override { return real_.sizes(self); }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl* self) const override { return real_.sym_sizes(self); }
  c10::Layout layout(const c10::TensorImpl* self) const override { return real_.layout(self); }
  int64_t numel(const c10::TensorImpl* self) const override { return real_.numel(self); }
  c10::SymInt sym_numel(const c10::TensorImpl* self) const override { return real_.sym_numel(self); }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl* self) const override { return real_.sym_strides(self); }
  c10::SymInt sym_storage_offset(const c10::TensorImpl* self) const override { return real_.sym_storage_offset(self); }
  void trace_gpu_event_creation(c10::DeviceType type, uintptr_t event) const override { real_.trace_gpu_event_creation(type, event); }
  void trace_gpu_event_deletion(c10::DeviceType type, uintptr_t event) const override { real_.trace_gpu_event_deletion(type, event); }
  void trace_gpu_event_record(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override { real_.trace_gpu_event_record(type, event, stream); }
  void trace_gpu_event_wait(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override { real_.trace_gpu_event_wait(type, event, stream); }
  void trace_gpu_memory_allocation(c10::DeviceType type, uintptr_t pointer) const override { real_.trace_gpu_memory_allocation(type, pointer); }
  void trace_gpu_memory_deallocation(c10::DeviceType type, uintptr_t pointer) const override { real_.trace_gpu_memory_deallocation(type, pointer); }
  void trace_gpu_stream_creation(c10::DeviceType type, uintptr_t stream) const override { real_.trace_gpu_stream_creation(type, stream); }
  void trace_gpu_device_synchronization(c10::DeviceType type) const override { real_.trace_gpu_device_synchronization(type); }
  void trace_gpu_stream_synchronization(c10::DeviceType type, uintptr_t stream) const override { real_.trace_gpu_stream_synchronization(type, stream); }
  void trace_gpu_event_synchronization(c10::DeviceType type, uintptr_t event) const override { real_.trace_gpu_event_synchronization(type, event); }

 private:
  const VTable& real_;
  const Modes& modes_;
};

}  // namespace

void install_modes(py::object mode_class, py::object random) {
  if (modes) return;
  // Both outlive everything: LibTorch may ask them until the process ends.
  modes = new Modes(std::move(mode_class), std::move(random));
  auto* interpreter = getPyInterpreter();
  interpreter->vtable_ = new Table(*interpreter->vtable_, *modes);
  program::use_modes_of(*modes);
}

at::Generator current_generator() {
  for (auto depth = ModeStack::stack_len(); depth > 0; --depth)
    if (const auto* interceptor = modes->at(depth - 1)) return interceptor->generator();
  return {};
}

RefusalScope::RefusalScope() {
  if (refusal_scopes++ == 0) refusal = nullptr;
}

RefusalScope::~RefusalScope() {
  if (--refusal_scopes == 0) refusal = nullptr;
}

void RefusalScope::rethrow() {
  if (refusal) std::rethrow_exception(refusal);
}

}  // namespace hfta::python
