#include "hfta/program/intercept.h"

#include <c10/core/impl/PyInterpreter.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace hfta::program {
namespace {

using Mode = c10::impl::PyObject_TorchDispatchMode;
using ModeStack = c10::impl::TorchDispatchModeTLS;

/// Takes the top mode off for a scope: what a kernel calls inside is part of it.
class Suspended {
 public:
  Suspended() : mode_(ModeStack::pop_stack()) {}
  ~Suspended() { ModeStack::push_non_infra_mode_onto_stack(mode_); }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  std::shared_ptr<Mode> mode_;
};

/// LibTorch reaches a mode through the table of a Python interpreter; this one has none behind it. A mode's "object" is our
/// interceptor, so what is seen belongs to the mode and travels with it to autograd's threads.
struct Table final : c10::impl::PyInterpreterVTable {
  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override;
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl* self) const override { return detach_below_mode(*self); }
  std::string name() const override { return "hfta"; }
  void incref(PyObject*) const override {}
  void decref(PyObject*) const override {}
  bool try_incref(const c10::impl::PyObjectSlot&) const override { return false; }
  size_t refcnt(PyObject*) const override { return 1; }
  void reportErrorCallback(PyObject*, c10::DispatchKey) const override {}
  void python_op_registration_trampoline(const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet, torch::jit::Stack*, bool,
                                         bool) const override {
    unused();
  }
  void throw_abstract_impl_not_imported_error(std::string, const char*, const char*) const override { unused(); }
  void python_dispatcher(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const override { unused(); }
  void reset_backward_hooks(const c10::TensorImpl*) const override {}
  [[noreturn]] static void unused() { TORCH_INTERNAL_ASSERT(false, "called only for tensors that live in Python"); }
  bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { unused(); }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { unused(); }
  bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const override { unused(); }
  bool is_non_overlapping_and_dense(const c10::TensorImpl*) const override { unused(); }
  c10::Device device(const c10::TensorImpl*) const override { unused(); }
  int64_t dim(const c10::TensorImpl*) const override { unused(); }
  c10::IntArrayRef strides(const c10::TensorImpl*) const override { unused(); }
  c10::IntArrayRef sizes(const c10::TensorImpl*) const override { unused(); }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const override { unused(); }
  c10::Layout layout(const c10::TensorImpl*) const override { unused(); }
  int64_t numel(const c10::TensorImpl*) const override { unused(); }
  c10::SymInt sym_numel(const c10::TensorImpl*) const override { unused(); }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const override { unused(); }
  c10::SymInt sym_storage_offset(const c10::TensorImpl*) const override { unused(); }
  void trace_gpu_event_creation(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_event_deletion(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_event_record(c10::DeviceType, uintptr_t, uintptr_t) const override {}
  void trace_gpu_event_wait(c10::DeviceType, uintptr_t, uintptr_t) const override {}
  void trace_gpu_memory_allocation(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_memory_deallocation(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_stream_creation(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_device_synchronization(c10::DeviceType) const override {}
  void trace_gpu_stream_synchronization(c10::DeviceType, uintptr_t) const override {}
  void trace_gpu_event_synchronization(c10::DeviceType, uintptr_t) const override {}
};

c10::impl::PyInterpreter* interpreter() {
  static Table table;
  static c10::impl::PyInterpreter interpreter(&table);
  return &interpreter;
}

void Table::dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
  const auto& top = ModeStack::get_stack_at(ModeStack::stack_len() - 1);
  dispatch_to(*reinterpret_cast<Interceptor*>(top->ptr(interpreter())), op, *stack);
}

/// Modes of a process without Python: the mode's object is the interceptor itself.
struct BareModes final : ModeSource {
  std::shared_ptr<Mode> make(Interceptor& interceptor) override {
    return std::make_shared<Mode>(reinterpret_cast<PyObject*>(&interceptor), interpreter());
  }
  void forget(const Mode&) override {}
};

std::atomic<ModeSource*>& source() {
  static BareModes bare;
  static std::atomic<ModeSource*> current{&bare};
  return current;
}

}  // namespace

void use_modes_of(ModeSource& modes) { source() = &modes; }

void dispatch_to(Interceptor& interceptor, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const Suspended suspended;
  interceptor.call(op, stack);
}

c10::intrusive_ptr<c10::TensorImpl> detach_below_mode(const c10::TensorImpl& self) {
  const Suspended suspended;
  return self.shallow_copy_and_detach(/*version_counter=*/0, /*allow_tensor_metadata_change=*/false);
}

InterceptScope::InterceptScope(Interceptor& interceptor) : depth_(ModeStack::stack_len()), source_(*source()), mode_(source_.make(interceptor)) {
  ModeStack::push_non_infra_mode_onto_stack(mode_);
}

InterceptScope::~InterceptScope() {
  while (ModeStack::stack_len() > depth_) ModeStack::pop_stack();
  source_.forget(*mode_);
}

}  // namespace hfta::program
