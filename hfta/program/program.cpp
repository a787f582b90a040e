#include "hfta/program/program.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

namespace hfta::program {
namespace {

// Their schemas do not say that they write the running statistics (arguments 3 and 4) where they train (argument 5).
constexpr std::array<std::string_view, 3> kWritesRunningStatistics{"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"};
constexpr std::array<std::string_view, 6> kAllocations{"aten::empty",         "aten::empty_like", "aten::empty_strided",
                                                       "aten::empty_permuted", "aten::new_empty",  "aten::new_empty_strided"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void write_value(std::ostream& out, const Program& program, ValueId id) {
  const auto& value = program.values[id];
  const auto& memory = program.memories[value.memory];
  out << '%' << id << ':' << c10::toString(value.dtype) << at::IntArrayRef(value.sizes);
  if (memory.origin == Origin::State) out << "@state" << memory.slot;
  if (memory.origin == Origin::Input) out << "@input" << memory.slot;
  if (memory.origin == Origin::Constant) out << "@constant";
}

void write_argument(std::ostream& out, const Program& program, const Argument& argument) {
  if (const auto* id = std::get_if<ValueId>(&argument)) return write_value(out, program, *id);
  if (const auto* plain = std::get_if<c10::IValue>(&argument)) {
    out << *plain;
    return;
  }
  if (const auto* generator = std::get_if<LaneGenerator>(&argument)) {
    out << "generator" << generator->lane;
    return;
  }
  if (const auto* generators = std::get_if<std::vector<LaneGenerator>>(&argument)) {
    out << generators->size() << " generators";
    return;
  }
  out << '[';
  const char* separator = "";
  each_value(argument, [&](ValueId id) {
    out << separator;
    write_value(out, program, id);
    separator = ", ";
  });
  out << ']';
}

void write_arguments(std::ostream& out, const Program& program, const std::vector<Argument>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i) out << ", ";
    write_argument(out, program, arguments[i]);
  }
}

}  // namespace

bool Memory::operator==(const Memory& other) const {
  if (origin != other.origin || slot != other.slot || bytes != other.bytes || device != other.device) return false;
  return !constant.defined() || (other.constant.defined() && at::equal(constant, other.constant));
}

std::int64_t Value::numel() const {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return count;
}

bool Value::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

std::vector<std::size_t> written_inputs(const c10::OperatorHandle& op, const std::vector<Argument>& inputs) {
  std::vector<std::size_t> written;
  const auto& arguments = op.schema().arguments();
  const auto* trains = inputs.size() > 5 ? std::get_if<c10::IValue>(&inputs[5]) : nullptr;
  const bool statistics = contains(kWritesRunningStatistics, op.schema().name()) && !(trains && trains->isBool() && !trains->toBool());
  for (std::size_t i = 0; i < inputs.size() && i < arguments.size(); ++i)
    if ((arguments[i].alias_info() && arguments[i].alias_info()->isWrite()) || (statistics && (i == 3 || i == 4))) written.push_back(i);
  return written;
}

bool is_view(const Program& program, const Node& node) {
  if (node.outputs.empty() || !written_inputs(node.op, node.inputs).empty()) return false;
  bool all_inside = true, any = false;
  for (const auto& output : node.outputs)
    each_value(output, [&](ValueId made) {
      bool inside = false;
      for (const auto& input : node.inputs)
        each_value(input, [&](ValueId read) { inside |= program.values[read].memory == program.values[made].memory; });
      all_inside &= inside;
      any = true;
    });
  return any && all_inside;
}

bool is_allocation(const Node& node) { return contains(kAllocations, node.op.schema().name()); }

std::string to_string(const Program& program, const Node& node) {
  std::ostringstream out;
  out << node.op.schema().name();
  if (!node.op.schema().overload_name().empty()) out << '.' << node.op.schema().overload_name();
  out << '(';
  write_arguments(out, program, node.inputs);
  out << ") -> ";
  write_arguments(out, program, node.outputs);
  return out.str();
}

std::string to_string(const Program& program) {
  std::ostringstream out;
  std::int64_t bytes = 0;
  for (const auto& memory : program.memories)
    if (memory.origin == Origin::Made) bytes += memory.bytes;
  out << "program: " << program.nodes.size() << " nodes, " << program.values.size() << " values, " << bytes << " bytes made\n";
  for (std::size_t i = 0; i < program.nodes.size(); ++i) out << i << ": " << to_string(program, program.nodes[i]) << '\n';
  return out.str();
}

}  // namespace hfta::program
