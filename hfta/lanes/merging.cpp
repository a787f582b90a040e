#include "hfta/lanes/merging.h"

#include <algorithm>

#include "hfta/program/passes.h"

namespace hfta::lanes {

using program::Argument;
using program::ValueId;

Merging::Merging(program::Program program)
    : program_(std::move(program)), keep_(program_.nodes.size(), true), readers_(program_.memories.size()), writers_(program_.memories.size()) {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& node = program_.nodes[i];
    for (const auto& input : node.inputs) program::each_value(input, [&](ValueId id) { note(readers_, id, i); });
    if (program::is_view(program_, node)) continue;
    for (const auto& output : node.outputs) program::each_value(output, [&](ValueId id) { note(writers_, id, i); });
    for (const auto written : program::written_inputs(node.op, node.inputs)) program::each_value(node.inputs[written], [&](ValueId id) { note(writers_, id, i); });
  }
  for (const auto& result : program_.results)
    if (result) note(readers_, *result, size());
}

void Merging::note(Places& places, ValueId id, std::size_t node) const {
  auto& of = places[index_of(id)];
  if (of.empty() || of.back() != node) of.push_back(node);
}

std::optional<ValueId> Merging::id_of(const std::vector<Argument>& arguments, std::size_t index) {
  const auto* id = index < arguments.size() ? std::get_if<ValueId>(&arguments[index]) : nullptr;
  return id ? std::optional(*id) : std::nullopt;
}

bool Merging::is_between(ValueId id, std::size_t node, std::initializer_list<std::size_t> readers) const {
  const auto& of = readers_[index_of(id)];
  return memory(id).origin == program::Origin::Made && writers(id) == std::vector{node} && std::equal(of.begin(), of.end(), readers.begin(), readers.end());
}

std::optional<std::vector<std::size_t>> Merging::readers_after(ValueId id, std::size_t node) const {
  if (memory(id).origin != program::Origin::Made || writers(id).back() != node) return std::nullopt;
  auto of = readers_[index_of(id)];
  std::erase_if(of, [=](std::size_t reader) { return reader <= node; });
  return of;
}

std::optional<std::size_t> Merging::taker(std::size_t node, std::string_view name) const {
  const auto made = output(node, 0);
  const auto users = made ? readers<1>(*made, node, {name}) : std::nullopt;
  return users && input((*users)[0], 0) == made ? std::optional((*users)[0]) : std::nullopt;
}

std::optional<std::size_t> Merging::taker_in_place(std::size_t node, std::string_view name) const {
  const auto made = output(node, 0);
  if (!made || memory(*made).origin != program::Origin::Made || writers(*made).size() != 2 || writers(*made)[0] != node) return std::nullopt;
  const auto taker = writers(*made)[1];
  const auto& of = readers_[index_of(*made)];
  return is(taker, name) && input(taker, 0) == made && output(taker, 0) == made && of.front() == taker ? std::optional(taker) : std::nullopt;
}

std::optional<std::size_t> Merging::rectifier(std::size_t node) const {
  const auto relu = taker(node, "aten::relu");
  return relu ? relu : taker_in_place(node, "aten::relu_");
}

bool Merging::is_relu_gradient(std::size_t node) const {
  if (!is(node, "aten::threshold_backward")) return false;
  const auto* threshold = std::get_if<c10::IValue>(&program_.nodes[node].inputs[2]);
  return threshold && threshold->isScalar() && threshold->toScalar().toDouble() == 0;
}

bool Merging::stays(const Argument& argument, std::size_t from, std::size_t to) const {
  bool same = true;
  program::each_value(argument, [&](ValueId id) {
    for (const auto w : writers(id)) same &= w <= from || w >= to;
  });
  return same;
}

ValueId Merging::add(const std::vector<std::int64_t>& sizes, at::ScalarType type, ValueId beside) {
  program::Value value{.memory = static_cast<std::int32_t>(program_.memories.size()), .sizes = sizes, .strides = std::vector<std::int64_t>(sizes.size(), 1), .dtype = type};
  for (std::size_t d = sizes.size(); d-- > 1;) value.strides[d - 1] = value.strides[d] * std::max<std::int64_t>(sizes[d], 1);
  program_.memories.push_back({.bytes = value.numel() * static_cast<std::int64_t>(c10::elementSize(type)), .device = memory(beside).device, .constant = {}});
  program_.values.push_back(std::move(value));
  readers_.emplace_back(), writers_.emplace_back();
  return static_cast<ValueId>(program_.values.size()) - 1;
}

void Merging::replace(std::size_t node, const char* op, std::vector<Argument> inputs, std::vector<Argument> outputs, std::initializer_list<std::size_t> dropped) {
  for (const auto other : dropped) keep_[other] = false;
  program_.nodes[node] = program::Node{c10::Dispatcher::singleton().findSchemaOrThrow(op, ""), std::move(inputs), std::move(outputs), false, std::nullopt};
}

program::Program Merging::finish() && { return program::keeping(std::move(program_), keep_); }

}  // namespace hfta::lanes
