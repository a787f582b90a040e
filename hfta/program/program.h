#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace hfta::program {

/// Where a piece of memory comes from.
enum class Origin {
  State,     ///< A parameter or buffer: slot `slot` of what the program is bound to.
  Input,     ///< An argument of the step: slot `slot`.
  Constant,  ///< Fixed contents, kept in the program.
  Made,      ///< Made by a node.
};

/// A piece of memory that values are views of.
struct Memory {
  Origin origin = Origin::Made;
  std::int64_t slot = -1;       ///< Of State and Input.
  std::int64_t bytes = 0;
  c10::Device device = c10::kCPU;
  at::Tensor constant;          ///< Of Constant: a byte tensor with the contents.

  bool operator==(const Memory& other) const;  ///< Constants by contents.
};

/// A value: one view of a memory. Autograd makes shallow copies that no operator announces, so a value is told by its memory and
/// its view of it, never by a tensor object. Indexed by `ValueId`.
struct Value {
  std::int32_t memory = -1;
  std::int64_t offset_bytes = 0;
  std::vector<std::int64_t> sizes, strides;  ///< Strides in elements.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conj = false, neg = false, wrapped_number = false;

  auto operator<=>(const Value&) const = default;
  std::int64_t numel() const;
  bool is_contiguous() const;
};
using ValueId = std::int32_t;

/// Stands where a node's generator goes: the generator of lane `lane` of the group that is bound.
struct LaneGenerator {
  std::int64_t lane = 0;
  bool operator==(const LaneGenerator&) const = default;
};

/// An argument or result of a node. `IValue` is whatever holds no tensor (None for an undefined one).
using Argument = std::variant<c10::IValue, ValueId, std::vector<ValueId>, std::vector<std::optional<ValueId>>, LaneGenerator, std::vector<LaneGenerator>>;

/// One operator of a recorded step.
struct Node {
  c10::OperatorHandle op;
  std::vector<Argument> inputs, outputs;
  bool grad_mode = false;  ///< Some kernels read it; it is set again around the call.
  /// A random node that draws from where an earlier random node began (checkpoint recompute): that node's index.
  std::optional<std::int32_t> rewinds_to;
};

/// A recorded step: a flat list of nodes on memories and views of them.
struct Program {
  std::vector<Memory> memories;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<std::optional<ValueId>> results;  ///< What the caller asked for, in its order.
};

/// Calls `f(id)` for each value in an argument.
template <typename F>
void each_value(const Argument& argument, F&& f) {
  if (const auto* id = std::get_if<ValueId>(&argument)) {
    f(*id);
  } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
    for (const ValueId id : *list) f(id);
  } else if (const auto* optional = std::get_if<std::vector<std::optional<ValueId>>>(&argument)) {
    for (const auto& id : *optional)
      if (id) f(*id);
  }
}

/// Where node results come from: the arguments that the node writes, by schema or by our table of operators that write running
/// statistics without saying so. Indices into `inputs`.
std::vector<std::size_t> written_inputs(const c10::OperatorHandle& op, const std::vector<Argument>& inputs);

/// The node only makes views: every result lies in the memory of one of its inputs and nothing is written.
bool is_view(const Program& program, const Node& node);

/// The node only provides fresh memory, whose contents nobody may rely on (`empty`, `empty_like`, `new_empty_strided`).
bool is_allocation(const Node& node);

/// "aten::mm(float[2, 3], float[3, 4]) -> float[2, 4]" with the values' numbers, one line.
std::string to_string(const Program& program, const Node& node);
/// All nodes, one per line, after a head that counts nodes and bytes.
std::string to_string(const Program& program);

}  // namespace hfta::program
