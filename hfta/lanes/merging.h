#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "hfta/program/program.h"

namespace hfta::lanes {

/// A program of which some nodes are being made one, and who reads and writes each of its memories.
class Merging {
 public:
  explicit Merging(program::Program program);

  const program::Program& program() const { return program_; }
  const program::Node& node(std::size_t index) const { return program_.nodes[index]; }
  const program::Value& value(program::ValueId id) const { return program_.values[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return program_.nodes.size(); }

  bool is(std::size_t node, std::string_view name) const { return keep_[node] && program_.nodes[node].op.schema().name() == name; }
  std::optional<program::ValueId> input(std::size_t node, std::size_t index) const { return id_of(program_.nodes[node].inputs, index); }
  std::optional<program::ValueId> output(std::size_t node, std::size_t index) const { return id_of(program_.nodes[node].outputs, index); }
  bool is_on_cpu(program::ValueId id) const { return memory(id).device.is_cpu(); }

  /// The nodes that write what a value lies in, in order.
  const std::vector<std::size_t>& writers(program::ValueId id) const { return writers_[index_of(id)]; }
  /// Made by a node, and read by these alone, in this order; the program's end stands for the caller.
  bool is_between(program::ValueId id, std::size_t node, std::initializer_list<std::size_t> readers) const;

  /// The nodes that read what `node` alone made, or wrote in place as the last one, one of each name in this order; nothing where others do.
  template <std::size_t N>
  std::optional<std::array<std::size_t, N>> readers(program::ValueId id, std::size_t node, const std::array<std::string_view, N>& names) const {
    const auto after = readers_after(id, node);
    if (!after || after->size() != N) return std::nullopt;
    std::array<std::size_t, N> nodes;
    for (std::size_t k = 0; k < N; ++k) {
      nodes[k] = (*after)[k];
      if (nodes[k] >= size() || !is(nodes[k], names[k])) return std::nullopt;
    }
    return nodes;
  }
  /// Who reads what `node` wrote, in order; nothing where it lives on or is written later.
  std::optional<std::vector<std::size_t>> readers_after(program::ValueId id, std::size_t node) const;
  const program::Memory& memory(program::ValueId id) const { return program_.memories[index_of(id)]; }

  /// The node of this name that alone reads the node's result, as its first argument.
  std::optional<std::size_t> taker(std::size_t node, std::string_view name) const;
  /// The ReLU, in place or not, that alone reads the node's result.
  std::optional<std::size_t> rectifier(std::size_t node) const;
  /// Passes a gradient where its second argument is above zero.
  bool is_relu_gradient(std::size_t node) const;
  /// No node in between writes what the argument reads.
  bool stays(const program::Argument& argument, std::size_t from, std::size_t to) const;

  /// A contiguous value of a memory of its own, on the device of another one.
  program::ValueId add(const std::vector<std::int64_t>& sizes, at::ScalarType type, program::ValueId beside);
  /// Puts the operator in the node's place and drops others.
  void replace(std::size_t node, const char* op, std::vector<program::Argument> inputs, std::vector<program::Argument> outputs, std::initializer_list<std::size_t> dropped);

  /// The program without what was dropped.
  program::Program finish() &&;

 private:
  using Places = std::vector<std::vector<std::size_t>>;

  /// The node of this name that overwrites the node's result before anybody else reads it.
  std::optional<std::size_t> taker_in_place(std::size_t node, std::string_view name) const;
  static std::optional<program::ValueId> id_of(const std::vector<program::Argument>& arguments, std::size_t index);
  std::size_t index_of(program::ValueId id) const { return static_cast<std::size_t>(value(id).memory); }
  void note(Places& places, program::ValueId id, std::size_t node) const;

  program::Program program_;
  std::vector<bool> keep_;
  Places readers_, writers_;  // of each memory: nodes in order
};

/// A ReLU, the max pooling behind it and their gradients, with the convolution before it where there is one. @returns whether node `i`, the ReLU, was merged.
bool merge_pool(Merging& merging, std::size_t i);

}  // namespace hfta::lanes
