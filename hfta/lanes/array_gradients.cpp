#include <ATen/core/grad_mode.h>

#include "hfta/base/error.h"
#include "hfta/lanes/array_state.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

/// One parameter's gradients: the stacked one and the lanes' own, brought together.
class GradientStack {
 public:
  GradientStack(std::vector<LaneEntry>& lanes, std::size_t parameter, const at::Tensor& stack, at::Tensor& attached)
      : lanes_(lanes), parameter_(parameter), stack_(stack), total_(stack.mutable_grad()), attached_(attached) {}

  void gather() {
    if (has_rows_of_lanes()) attached_ = total_;
    const bool ours = attached_.defined() && total_.defined() && total_.is_same(attached_);
    if (!ours) drop_old_rows();
    bool any = false;
    for (std::int64_t lane = 0; lane < count(); ++lane) any |= own(lane).defined();
    if (!any && (ours || !total_.defined())) return total_.reset(), attached_.reset();
    const bool from_outside = total_.defined() && !ours;
    if (!ours) {
      attached_ = allocate_rows(row(stack_, 0), count(), stack_.options());
      if (from_outside) attached_.copy_(total_.detach());
      total_ = attached_;
    }
    for (std::int64_t lane = 0; lane < count(); ++lane) take(lane, ours, from_outside);
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(lanes_.size()); }
  at::Tensor& own(std::int64_t lane) { return lanes_[lane].tensors.parameters[parameter_].mutable_grad(); }

  /// Recorded passes make a stacked gradient with the lanes' own as its rows.
  bool has_rows_of_lanes() {
    if (!total_.defined() || total_.is_same(attached_)) return false;
    bool any = false;
    for (std::int64_t lane = 0; lane < count(); ++lane) {
      if (!own(lane).defined()) continue;
      if (own(lane).is_sparse() || !is_row(own(lane), total_, lane)) return false;
      any = true;
    }
    return any;
  }

  /// The stacked gradient was cleared or replaced: the lanes' rows of the old one count no more.
  void drop_old_rows() {
    if (!attached_.defined()) return;
    for (std::int64_t lane = 0; lane < count(); ++lane)
      if (own(lane).defined() && own(lane).is_alias_of(attached_)) own(lane).reset();
  }

  void take(std::int64_t lane, bool ours, bool from_outside) {
    auto& gradient = own(lane);
    if (gradient.defined() && !gradient.is_sparse() && is_row(gradient, total_, lane)) return;
    const auto place = row(total_, lane);
    if (!gradient.defined()) {
      if (ours) place.zero_();
      if (from_outside) gradient = place;
      return;
    }
    const auto value = gradient.detach().is_sparse() ? gradient.detach().to_dense() : gradient.detach();
    from_outside ? place.add_(value) : place.copy_(value);
    gradient = place;
  }

  std::vector<LaneEntry>& lanes_;
  std::size_t parameter_;
  at::Tensor stack_;
  at::Tensor& total_;
  at::Tensor& attached_;
};

}  // namespace

void ArrayBase::stack_gradients() {
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < state_->parameters.size(); ++p)
    if (state_->parameters[p].trainable) GradientStack(state_->lanes, p, state_->parameters[p].tensor, state_->attached[p]).gather();
}

void ArrayBase::zero_grad() {
  for (std::size_t p = 0; p < state_->parameters.size(); ++p) {
    state_->parameters[p].tensor.mutable_grad().reset();
    state_->attached[p].reset();
    for (auto& entry : state_->lanes) entry.tensors.parameters[p].mutable_grad().reset();
  }
}

namespace {

/// Whether a lane's tensor is where it belongs: in its row, or the very object that looks at what is stored once (`settle` sees to its memory).
bool is_in_place(const at::Tensor& tensor, const at::Tensor& known, const Stacked& stacked, std::int64_t lane) {
  return stacked.shared.defined() ? tensor.is_same(known) : is_row(tensor, stacked.tensor, lane);
}

/// A lane's tensors as registered now that are not where they belong.
std::vector<std::size_t> outside(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& known, const std::vector<Stacked>& stacks, std::int64_t lane) {
  HFTA_CHECK(tensors.size() == stacks.size(), "lanes::Array: expected lane ", lane, " with ", stacks.size(), " different tensors of a kind, got ", tensors.size());
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (is_in_place(tensors[i], known[i], stacks[i], lane)) continue;
    const auto& stack = stacks[i].tensor;
    HFTA_CHECK(tensors[i].sizes() == stack.sizes().slice(1) && tensors[i].scalar_type() == stack.scalar_type(), "lanes::Array: expected \"", stacks[i].name,
               "\" of lane ", lane, " as ", stack.scalar_type(), " ", stack.sizes().slice(1), ", got ", tensors[i].scalar_type(), " ", tensors[i].sizes());
    found.push_back(i);
  }
  return found;
}

bool all_in_place(const std::vector<at::Tensor>& tensors, const std::vector<Stacked>& stacks, std::int64_t lane) {
  for (std::size_t i = 0; i < stacks.size(); ++i)
    if (!is_in_place(tensors[i], tensors[i], stacks[i], lane)) return false;
  return true;
}

}  // namespace

std::vector<std::string> ArrayBase::restore_rows(std::int64_t lane) {
  auto& entry = state_->at(lane);
  if (is_registered_as(*entry.module, entry.tensors) && all_in_place(entry.tensors.parameters, parameters(), lane) && all_in_place(entry.tensors.buffers, buffers(), lane)) return {};
  auto now = tensors_of(*entry.module, lane);
  HFTA_CHECK(now.registrations.size() == state_->registrations.size(), "lanes::Array: expected lane ", lane, " with ", state_->registrations.size(),
             " registered tensors, got ", now.registrations.size());
  const auto moved_parameters = outside(now.parameters, entry.tensors.parameters, parameters(), lane),
             moved_buffers = outside(now.buffers, entry.tensors.buffers, buffers(), lane);
  std::vector<std::string> names;
  const at::NoGradGuard no_grad;
  const auto restore = [&](const at::Tensor& tensor, const Stacked& stack) {
    names.push_back(stack.name);
    if (stack.shared.defined()) return;  // memory of its own, as where it was written
    const auto place = row(stack.tensor, lane);
    place.copy_(tensor.detach());
    look_at(tensor, place);
  };
  for (const auto i : moved_parameters) restore(now.parameters[i], parameters()[i]);
  for (const auto i : moved_buffers) restore(now.buffers[i], buffers()[i]);
  for (const auto& alias : now.aliases) look_at(alias.tensor, now.at(alias.of_parameter, alias.index).detach());
  entry.tensors = std::move(now);
  return names;
}

}  // namespace hfta::lanes
