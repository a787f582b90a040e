#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace hfta::train {

/// Brings together what the groups of an array give, on whatever worker they run.
class GroupOutputs {
 public:
  explicit GroupOutputs(std::int64_t lanes) : lanes_(lanes) {}

  /// Copies results `[width, ...]` of the lanes from `first` on.
  /// @throws InvalidArgument when they differ from another group's in number, shape or type.
  void take(std::int64_t first, std::span<const at::Tensor> results);
  /// All of them, `[lanes, ...]`.
  std::vector<at::Tensor> all() { return std::move(all_); }

 private:
  std::int64_t lanes_;
  std::mutex mutex_;
  std::vector<at::Tensor> all_;
};

}  // namespace hfta::train
