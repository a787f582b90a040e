#include "hfta/train/snapshot.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "hfta/base/error.h"

namespace hfta::train {
namespace {

struct ArrayCopy {
  lanes::ArrayBase* array;
  std::uint64_t generation;
  std::vector<at::Tensor> parameters, buffers, generators;
};

std::vector<at::Tensor> copies(const std::vector<lanes::Stacked>& stacks) {
  std::vector<at::Tensor> all;
  for (const auto& stack : stacks) all.push_back(stack.shared.defined() ? stack.shared : stack.tensor.detach().clone());  // what is shared is never written
  return all;
}

void put_back(lanes::ArrayBase& array, const std::vector<at::Tensor>& saved, const std::vector<lanes::Stacked>& stacks) {
  for (std::size_t i = 0; i < stacks.size(); ++i)
    if (!saved[i].is_same(stacks[i].shared)) array.write(stacks[i], saved[i].expand_as(stacks[i].tensor));
}

}  // namespace

struct Snapshot::State {
  std::vector<ArrayCopy> arrays;
  optim::Optimizer* optimizer;
  std::vector<c10::IValue> optimizer_state;
};

Snapshot::Snapshot(std::span<lanes::ArrayBase* const> arrays, optim::Optimizer& optimizer) : state_(std::make_unique<State>()) {
  const at::NoGradGuard no_grad;
  state_->optimizer = &optimizer;
  for (auto* array : arrays) {
    ArrayCopy copy{array, array->generation(), copies(array->parameters()), copies(array->buffers()), {}};
    for (std::int64_t lane = 0; lane < array->lanes(); ++lane) copy.generators.push_back(array->generator(lane).get_state());
    state_->arrays.push_back(std::move(copy));
  }
  for (std::int64_t lane = 0; lane < optimizer.array().lanes(); ++lane)
    state_->optimizer_state.push_back(optimizer.lane_state_dict(lane).deepcopy());
}

Snapshot::~Snapshot() = default;
Snapshot::Snapshot(Snapshot&&) noexcept = default;

void Snapshot::restore() const {
  const at::NoGradGuard no_grad;
  for (const auto& copy : state_->arrays)
    HFTA_CHECK(copy.generation == copy.array->generation(), "train::Snapshot: expected the lanes that were saved, got an array whose lanes have moved");
  for (const auto& copy : state_->arrays) {
    put_back(*copy.array, copy.parameters, copy.array->parameters());
    put_back(*copy.array, copy.buffers, copy.array->buffers());
    for (std::int64_t lane = 0; lane < copy.array->lanes(); ++lane) copy.array->generator(lane).set_state(copy.generators[lane]);
    copy.array->zero_grad();
  }
  for (std::int64_t lane = 0; lane < state_->optimizer->array().lanes(); ++lane)
    state_->optimizer->load_lane_state_dict(lane, state_->optimizer_state[lane]);
}

}  // namespace hfta::train
