#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hfta/ops/lane_tensor.h"
#include "hfta/program/program.h"

namespace hfta::lanes {

/// Where the values of one lane's program lie physically while the program is lifted: for each memory one tensor of all lanes (or of
/// none, where lanes share it), of which every other view of that memory follows.
class LiftedValues {
 public:
  /// @param varies per memory, whether it differs between lanes.
  LiftedValues(const program::Program& program, std::vector<bool> varies, std::int64_t lanes);

  bool varies(program::ValueId id) const { return varies_[memory(id)]; }
  bool memory_varies(std::size_t memory) const { return varies_[memory]; }

  /// The memory of a slot or constant; its lane axis is the outermost where it varies.
  void place(std::size_t memory, at::Tensor tensor);
  /// A node's result; spread over the lanes if it is shared but its memory will vary.
  void set(program::ValueId id, ops::LaneTensor tensor);
  /// A node's result laid out as recorded, lanes outermost, with nothing in it yet.
  void allocate(program::ValueId id);
  /// A view of what is already there, where it can be one. @returns whether it is.
  bool derive_all(const std::vector<program::ValueId>& ids);
  /// A view through memory laid out as recorded, into which `from` is copied first.
  void derive_from_copy(program::ValueId id, program::ValueId from);

  const ops::LaneTensor& of(program::ValueId id);
  /// A value as the program's result: `[lanes, ...]`, dense; of a single lane as recorded.
  at::Tensor dense(program::ValueId id);

  /// A single lane's result laid out as recorded, which views of it count on: itself, or a copy.
  at::Tensor as_recorded(program::ValueId id, at::Tensor tensor) const;

  /// Nodes before this one have run: values that nobody uses from here on are let go.
  void advance(std::size_t node);

 private:
  struct Base {
    program::Value value;
    ops::LaneTensor tensor;
  };
  std::int32_t memory(program::ValueId id) const { return program_.values[id].memory; }
  std::optional<ops::LaneTensor> derive(const program::Value& value, const Base& base) const;
  at::Tensor recorded_layout(const program::Value& value) const;
  at::TensorOptions options_of(const program::Value& value) const;
  Base relaid(const Base& base);
  void note_uses();

  const program::Program& program_;
  std::vector<bool> varies_;
  std::int64_t lanes_;
  std::vector<std::optional<ops::LaneTensor>> lifted_;  // per value
  std::vector<std::optional<Base>> bases_;              // per memory
  std::vector<std::vector<std::int32_t>> ends_;         // memories by the node after which nobody uses them
  std::vector<std::vector<program::ValueId>> of_memory_;
  std::vector<std::int32_t> last_write_;  // per memory
  std::size_t node_ = 0;
};

}  // namespace hfta::lanes
