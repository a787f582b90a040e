#include "hfta/program/work.h"

#include <string_view>

namespace hfta::program {
namespace {

const Value* value_of(const Program& program, const Argument& argument) {
  const auto* id = std::get_if<ValueId>(&argument);
  return id ? &program.values[*id] : nullptr;
}

double bytes_of(const Program& program, const Argument& argument) {
  double bytes = 0;
  each_value(argument, [&](ValueId id) {
    const auto& value = program.values[id];
    bytes += static_cast<double>(value.numel()) * static_cast<double>(c10::elementSize(value.dtype));
  });
  return bytes;
}

/// `[.., m, k] x [.., k, n]`: the first operand's elements for each of the result's columns.
double product_flops(const Program& program, const Node& node, std::size_t first) {
  const auto *left = first < node.inputs.size() ? value_of(program, node.inputs[first]) : nullptr,
             *right = first + 1 < node.inputs.size() ? value_of(program, node.inputs[first + 1]) : nullptr;
  if (!left || !right || right->sizes.empty()) return 0;
  return 2.0 * static_cast<double>(left->numel()) * (right->sizes.size() == 1 ? 1.0 : static_cast<double>(right->sizes.back()));
}

/// For each element of `outputs` a window of `weight`, whose first axis is the output's channels.
double convolution_flops(const Value* outputs, const Value* weight, double passes) {
  if (!outputs || !weight || weight->sizes.empty()) return 0;
  return 2.0 * passes * static_cast<double>(outputs->numel()) * static_cast<double>(weight->numel()) / static_cast<double>(weight->sizes[0]);
}

double flops_of(const Program& program, const Node& node) {
  const std::string_view name = node.op.schema().name();
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" || name == "aten::dot" || name == "hfta::mm_gated") return product_flops(program, node, 0);
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" || name == "hfta::addmm_relu") return product_flops(program, node, 1);
  if (name == "aten::convolution" && node.outputs.size() == 1)
    return convolution_flops(value_of(program, node.outputs[0]), value_of(program, node.inputs[1]), 1);
  // Of each window of 2 x 2 one output is left.
  if (name == "hfta::convolution_rectified_max_pool2d") return convolution_flops(value_of(program, node.outputs[0]), value_of(program, node.inputs[1]), 4);
  if (name == "hfta::convolution_rectified_max_pool2d_backward") {
    const bool wants_input = !node.outputs.empty() && value_of(program, node.outputs[0]);
    return convolution_flops(value_of(program, node.inputs[0]), value_of(program, node.inputs[3]), wants_input ? 8 : 4);
  }
  if (name == "aten::convolution_backward") {
    const bool wants_input = !node.outputs.empty() && value_of(program, node.outputs[0]);
    return convolution_flops(value_of(program, node.inputs[0]), value_of(program, node.inputs[2]), wants_input ? 2 : 1);
  }
  return 0;
}

/// FNV-1a.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) byte(static_cast<unsigned char>(c));
    byte(0);
  }
  void add(std::int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<unsigned char>(static_cast<std::uint64_t>(number) >> shift));
  }
  std::uint64_t value() const { return value_; }

 private:
  void byte(unsigned char b) { value_ = (value_ ^ b) * 0x100000001b3ULL; }
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

void add_argument(Hash& hash, const Program& program, const Argument& argument) {
  hash.add(static_cast<std::int64_t>(argument.index()));
  each_value(argument, [&](ValueId id) {
    const auto& value = program.values[id];
    const auto& memory = program.memories[value.memory];
    for (const auto number : {std::int64_t{id}, std::int64_t{value.memory}, value.offset_bytes, static_cast<std::int64_t>(value.dtype), static_cast<std::int64_t>(memory.origin), memory.slot})
      hash.add(number);
    for (const auto& list : {value.sizes, value.strides}) {
      hash.add(static_cast<std::int64_t>(list.size()));
      for (const auto number : list) hash.add(number);
    }
  });
  const auto* plain = std::get_if<c10::IValue>(&argument);
  if (!plain) return;
  if (plain->isInt()) hash.add(plain->toInt());
  else if (plain->isBool()) hash.add(std::int64_t{plain->toBool()});
  else if (plain->isString()) hash.add(plain->toStringRef());
  else if (plain->isIntList())
    for (const auto number : plain->toIntVector()) hash.add(number);
  else hash.add(plain->tagKind());
}

}  // namespace

Work work_of(const Program& program) {
  Work work{.nodes = static_cast<std::int64_t>(program.nodes.size())};
  for (const auto& node : program.nodes) {
    work.flops += flops_of(program, node);
    for (const auto* arguments : {&node.inputs, &node.outputs})
      for (const auto& argument : *arguments) work.moved_bytes += bytes_of(program, argument);
  }
  for (const auto& memory : program.memories)
    if (memory.origin == Origin::Made) work.made_bytes += static_cast<double>(memory.bytes);
  return work;
}

std::uint64_t fingerprint(const Program& program) {
  Hash hash;
  for (const auto& node : program.nodes) {
    hash.add(node.op.schema().name());
    hash.add(node.op.schema().overload_name());
    for (const auto* arguments : {&node.inputs, &node.outputs})
      for (const auto& argument : *arguments) add_argument(hash, program, argument);
  }
  return hash.value();
}

}  // namespace hfta::program
