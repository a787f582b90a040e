#include "hfta/train/memory_probe.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

namespace hfta::train {
namespace {

// LibTorch's allocator tells a thread's profiler of every block taken and given back.
class Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, size_t, size_t, c10::Device) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t live_ = 0, peak_ = 0;
};

}  // namespace

std::int64_t peak_bytes_during(const std::function<void()>& action) {
  const auto counter = std::make_shared<Counter>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counter);
  action();
  return counter->peak();
}

}  // namespace hfta::train
