#include <ATen/core/grad_mode.h>

#include "hfta/base/error.h"
#include "hfta/lanes/array_state.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

/// A memory address tells whether a lazy copy was written: then it has become a copy.
bool looks_at(const at::Tensor& tensor, const at::Tensor& shared) { return tensor.const_data_ptr() == shared.const_data_ptr(); }

/// Whether each row of `[lanes, ...]` is the first one.
bool rows_are_equal(const at::Tensor& stack) {
  if (stack.stride(0) == 0) return true;
  for (std::int64_t lane = 1; lane < stack.size(0); ++lane)
    if (!same_bits(stack[0], stack[lane])) return false;
  return true;
}

}  // namespace

std::pair<bool, std::size_t> ArrayBase::State::place_of(const Stacked& own) const {
  for (const bool parameter : {true, false}) {
    const auto& all = parameter ? parameters : buffers;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (&all[i] == &own) return {parameter, i};
  }
  throw InvalidArgument(base::message("lanes::Array: expected one of the array's parameters and buffers, got \"", own.name, "\" of another"));
}

void ArrayBase::State::settle(bool parameter, std::size_t index) {
  auto& own = stacked(parameter, index);
  if (!looks_at(own.tensor, own.shared)) {
    const bool written = !same_bits(own.tensor.detach().select(0, 0), own.shared);
    look_at(own.tensor, leaf_of_one(own.shared, count()).stack);
    HFTA_CHECK(!written, "lanes::Array: expected \"", own.name, "\", which is equal in all lanes and stored once, to be written through the lanes, got a write into the stacked tensor");
  }
  bool written = false;
  for (const auto& entry : lanes) {
    const auto& tensor = entry.tensors.at(parameter, index);
    if (looks_at(tensor, own.shared)) continue;
    // Some kernels ask for memory that they may write and then only read it.
    if (same_bits(tensor.detach(), own.shared)) place(entry.tensors, parameter, index, memory_of(own.tensor, own.shared, 0));
    else written = true;
  }
  if (written) unshare(parameter, index);
}

void ArrayBase::State::unshare(bool parameter, std::size_t index) {
  auto& own = stacked(parameter, index);
  const auto rows = leaf_of_rows(own.shared, count(), own.shared.options()).stack;
  for (std::int64_t lane = 0; lane < count(); ++lane) {
    const auto place_of_lane = row(rows, lane);
    place_of_lane.copy_(lanes[lane].tensors.at(parameter, index).detach());
    place(lanes[lane].tensors, parameter, index, place_of_lane);
  }
  look_at(own.tensor, rows);  // the tensor object stays: others hold it
  own.shared.reset();
  ++sharing;
}

void ArrayBase::State::follow_freezing() {
  trained = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto& own = parameters[p];
    const bool wanted = own.tensor.requires_grad(), was_told = wanted != own.trainable;
    bool any = false;
    for (const auto& entry : lanes) {
      const auto& tensor = entry.tensors.parameters[p];
      if (was_told) tensor.set_requires_grad(wanted);
      any |= tensor.requires_grad();
      trained = trained * 0x100000001b3 + (tensor.requires_grad() ? 2 : 1);
    }
    own.trainable = any;
    own.tensor.set_requires_grad(any);
    if (any && own.shared.defined()) unshare(true, p);
  }
}

void ArrayBase::settle() {
  const at::NoGradGuard no_grad;
  state_->follow_freezing();
  for (const bool parameter : {true, false})
    for (std::size_t i = 0; i < (parameter ? parameters() : buffers()).size(); ++i)
      if (state_->stacked(parameter, i).shared.defined()) state_->settle(parameter, i);
}

void ArrayBase::unshare(const Stacked& stacked) {
  const at::NoGradGuard no_grad;
  const auto [parameter, index] = state_->place_of(stacked);
  if (stacked.shared.defined()) state_->unshare(parameter, index);
}

void ArrayBase::look_at_shared(std::int64_t lane) {
  const auto& entry = state_->at(lane);
  for (const bool parameter : {true, false})
    for (std::size_t i = 0; i < (parameter ? parameters() : buffers()).size(); ++i)
      if (const auto& own = state_->stacked(parameter, i); own.shared.defined() && !looks_at(entry.tensors.at(parameter, i), own.shared))
        place(entry.tensors, parameter, i, memory_of(own.tensor, own.shared, lane));
}

void ArrayBase::write(const Stacked& stacked, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  settle();
  if (stacked.shared.defined() && rows_are_equal(value)) {
    if (same_bits(value[0], stacked.shared)) return;
    const auto [parameter, index] = state_->place_of(stacked);
    state_->stacked(parameter, index).shared = value_to_share(value[0].to(stacked.shared.options()));
    look_at(stacked.tensor, leaf_of_one(stacked.shared, lanes()).stack);
    for (std::int64_t lane = 0; lane < lanes(); ++lane) look_at_shared(lane);
    return;
  }
  unshare(stacked);
  stacked.tensor.detach().copy_(value);
}

std::uint64_t ArrayBase::sharing() const { return state_->sharing; }
std::uint64_t ArrayBase::trained() const { return state_->trained; }

}  // namespace hfta::lanes
