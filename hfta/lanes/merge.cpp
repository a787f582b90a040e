#include "hfta/lanes/merge.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hfta/ops/softmax.h"
#include "hfta/program/passes.h"

namespace hfta::lanes {
namespace {

using program::Argument;
using program::Node;
using program::Program;
using program::Value;
using program::ValueId;

c10::OperatorHandle operator_named(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

class Merger {
 public:
  explicit Merger(Program program) : program_(std::move(program)), keep_(program_.nodes.size(), true), readers_(program_.memories.size()), writers_(program_.memories.size()) {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto& node = program_.nodes[i];
      for (const auto& input : node.inputs) program::each_value(input, [&](ValueId id) { note(readers_, id, i); });
      if (program::is_view(program_, node)) continue;
      for (const auto& output : node.outputs) program::each_value(output, [&](ValueId id) { note(writers_, id, i); });
      for (const auto written : program::written_inputs(node.op, node.inputs)) program::each_value(node.inputs[written], [&](ValueId id) { note(writers_, id, i); });
    }
    for (const auto& result : program_.results)
      if (result) note(readers_, *result, program_.nodes.size());
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) merge_classifier(i) || merge_relu(i) || merge_gate(i);
    return program::keeping(std::move(program_), keep_);
  }

 private:
  using Places = std::vector<std::vector<std::size_t>>;

  void note(Places& places, ValueId id, std::size_t node) const {
    auto& of = places[static_cast<std::size_t>(memory_of(id))];
    if (of.empty() || of.back() != node) of.push_back(node);
  }

  std::int32_t memory_of(ValueId id) const { return program_.values[static_cast<std::size_t>(id)].memory; }
  const Value& value(ValueId id) const { return program_.values[static_cast<std::size_t>(id)]; }
  bool is(std::size_t node, std::string_view name) const { return keep_[node] && program_.nodes[node].op.schema().name() == name; }
  std::optional<ValueId> input(std::size_t node, std::size_t index) const { return id_of(program_.nodes[node].inputs, index); }
  std::optional<ValueId> output(std::size_t node, std::size_t index) const { return id_of(program_.nodes[node].outputs, index); }

  static std::optional<ValueId> id_of(const std::vector<Argument>& arguments, std::size_t index) {
    const auto* id = index < arguments.size() ? std::get_if<ValueId>(&arguments[index]) : nullptr;
    return id ? std::optional(*id) : std::nullopt;
  }

  /// Made by `node` alone and read by these alone, in this order.
  bool is_between(ValueId id, std::size_t node, std::initializer_list<std::size_t> readers) const {
    const auto m = static_cast<std::size_t>(memory_of(id));
    return program_.memories[m].origin == program::Origin::Made && writers_[m] == std::vector{node} && std::equal(readers_[m].begin(), readers_[m].end(), readers.begin(), readers.end());
  }

  /// The nodes that read what `node` alone made, one of each name in this order; nothing where others do.
  template <std::size_t N>
  std::optional<std::array<std::size_t, N>> readers(ValueId id, std::size_t node, const std::array<std::string_view, N>& names) const {
    const auto m = static_cast<std::size_t>(memory_of(id));
    const auto& of = readers_[m];
    if (program_.memories[m].origin != program::Origin::Made || writers_[m] != std::vector{node} || of.size() != N) return std::nullopt;
    std::array<std::size_t, N> nodes;
    for (std::size_t k = 0; k < N; ++k) {
      if (of[k] >= program_.nodes.size() || !is(of[k], names[k])) return std::nullopt;
      nodes[k] = of[k];
    }
    return nodes;
  }

  /// The node of this name that alone reads the node's result, as its first argument.
  std::optional<std::size_t> taker(std::size_t node, std::string_view name) const {
    const auto made = output(node, 0);
    const auto users = made ? readers<1>(*made, node, {name}) : std::nullopt;
    return users && input((*users)[0], 0) == made ? std::optional((*users)[0]) : std::nullopt;
  }

  /// No node in between writes what the argument reads.
  bool stays(const Argument& argument, std::size_t from, std::size_t to) const {
    bool same = true;
    program::each_value(argument, [&](ValueId id) {
      for (const auto w : writers_[static_cast<std::size_t>(memory_of(id))]) same &= w <= from || w >= to;
    });
    return same;
  }

  void replace(std::size_t node, const char* op, std::vector<Argument> inputs, std::vector<Argument> outputs, std::initializer_list<std::size_t> dropped) {
    for (const auto other : dropped) keep_[other] = false;
    program_.nodes[node] = Node{operator_named(op), std::move(inputs), std::move(outputs), false, std::nullopt};
  }

  /// Rows of few classes on the CPU, whose loss is a mean or a sum that is differentiated as it is.
  bool merge_classifier(std::size_t i) {
    if (!is(i, "aten::_log_softmax")) return false;
    const auto logits = input(i, 0), logs = output(i, 0);
    if (!logits || !logs || !takes_classes(*logits, program_.nodes[i].inputs[1], *logs)) return false;
    const auto users = readers<3>(*logs, i, {"aten::nll_loss_forward", "aten::nll_loss_backward", "aten::_log_softmax_backward_data"});
    if (!users) return false;
    const auto [forward, backward, last] = *users;
    const auto &loss = program_.nodes[forward], &gradient = program_.nodes[backward];
    const auto target = input(forward, 1), seed = input(backward, 0), of_logs = output(backward, 0), result = output(last, 0), total = output(forward, 1);
    if (!target || !seed || !of_logs || !result || !total || value(*target).dtype != at::kLong || value(*target).sizes.size() != 1) return false;
    if (std::get<c10::IValue>(loss.inputs[3]).toInt() == at::Reduction::None || !value(*result).is_contiguous()) return false;
    for (std::size_t k = 1; k < 5; ++k)
      if (!(loss.inputs[k] == gradient.inputs[k + 1])) return false;
    if (input(backward, 6) != total || input(last, 0) != of_logs || !is_between(*of_logs, backward, {last}) || !is_between(*total, forward, {backward})) return false;
    const auto& makers = writers_[static_cast<std::size_t>(memory_of(*seed))];
    if (makers.size() != 1 || !is(makers[0], "aten::ones_like") || !is_between(*seed, makers[0], {backward})) return false;
    for (const auto& argument : {program_.nodes[i].inputs[0], loss.inputs[1], loss.inputs[2]})
      if (!stays(argument, i, last)) return false;
    replace(i, "hfta::cross_entropy", {*logits, loss.inputs[1], loss.inputs[2], loss.inputs[3], loss.inputs[4]}, {loss.outputs[0], *total, *result}, {forward, makers[0], backward, last});
    return true;
  }

  bool takes_classes(ValueId logits, const Argument& dim, ValueId logs) const {
    const auto& of = value(logits);
    const auto* along = std::get_if<c10::IValue>(&dim);
    return program_.memories[static_cast<std::size_t>(of.memory)].device.is_cpu() && (of.dtype == at::kFloat || of.dtype == at::kDouble) && value(logs).dtype == of.dtype &&
           of.sizes.size() == 2 && of.sizes[1] > 0 && of.sizes[1] <= ops::kMostClasses && along && (along->toInt() == 1 || along->toInt() == -1);
  }

  bool merge_relu(std::size_t i) {
    if (!is(i, "aten::addmm")) return false;
    const auto relu = taker(i, "aten::relu");
    if (!relu) return false;
    replace(i, "hfta::addmm_relu", program_.nodes[i].inputs, program_.nodes[*relu].outputs, {*relu});
    return true;
  }

  bool merge_gate(std::size_t i) {
    if (!is(i, "aten::mm")) return false;
    const auto gated = taker(i, "aten::threshold_backward");
    if (!gated) return false;
    const auto sums = output(i, 0), gate = input(*gated, 1);
    const auto* threshold = std::get_if<c10::IValue>(&program_.nodes[*gated].inputs[2]);
    if (!gate || !threshold || threshold->toScalar().toDouble() != 0 || value(*gate).sizes != value(*sums).sizes || value(*gate).dtype != value(*sums).dtype) return false;
    for (const auto& argument : program_.nodes[i].inputs)
      if (!stays(argument, i, *gated)) return false;
    replace(*gated, "hfta::mm_gated", {program_.nodes[i].inputs[0], program_.nodes[i].inputs[1], *gate}, program_.nodes[*gated].outputs, {i});
    return true;
  }

  Program program_;
  std::vector<bool> keep_;
  Places readers_, writers_;  // of each memory: nodes in order; its end stands for the caller
};

}  // namespace

program::Program merged(program::Program program) { return Merger(std::move(program)).run(); }

}  // namespace hfta::lanes
