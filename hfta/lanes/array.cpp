#include "hfta/lanes/array.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/log.h"
#include "hfta/base/memory.h"
#include "hfta/lanes/array_state.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

/// Visits each of a module's tensors: whether it is a parameter, its index, the tensor.
template <typename Visit>
void each_tensor(const ModuleTensors& tensors, const Visit& visit) {
  for (std::size_t i = 0; i < tensors.parameters.size(); ++i) visit(true, i, tensors.parameters[i]);
  for (std::size_t i = 0; i < tensors.buffers.size(); ++i) visit(false, i, tensors.buffers[i]);
}

/// Gives the module memory of its own: it no longer belongs to the array. Its share of what is stored once it keeps: a lazy copy.
void detach_module(const LaneEntry& entry, const std::vector<Stacked>& parameters, const std::vector<Stacked>& buffers) {
  each_tensor(entry.tensors, [&](bool parameter, std::size_t i, const at::Tensor& own) {
    if (!(parameter ? parameters : buffers)[i].shared.defined()) place(entry.tensors, parameter, i, own.detach().clone());
    if (parameter && own.grad().defined()) own.mutable_grad() = own.grad().detach().clone();
  });
}

/// Builds one lane's module while the default generator is the lane's.
ArrayBase::Module build_module(const ArrayBase::Factory& factory, std::int64_t lane, const at::Generator& generator) {
  const base::DefaultGeneratorScope scope(generator);
  auto module = factory(lane);
  HFTA_CHECK(module != nullptr, "lanes::Array: expected the factory to build lane ", lane, ", got no module");
  return module;
}

/// Makes a lane's tensors look at where the stacks have them.
void place_all(const LaneEntry& entry, const std::vector<Leaf>& parameters, const std::vector<Leaf>& buffers, std::int64_t lane) {
  each_tensor(entry.tensors, [&](bool parameter, std::size_t i, const at::Tensor&) {
    const auto& leaf = (parameter ? parameters : buffers)[i];
    place(entry.tensors, parameter, i, memory_of(leaf.stack, leaf.shared, lane));
  });
}

constexpr std::int64_t kFreedBytes = 32 << 20;  // of built lanes' own memory, before it goes back to the system

std::int64_t bytes_of(const ModuleTensors& tensors) {
  std::int64_t bytes = 0;
  each_tensor(tensors, [&](bool, std::size_t, const at::Tensor& tensor) { bytes += static_cast<std::int64_t>(tensor.nbytes()); });
  return bytes;
}

c10::Device device_of(const ModuleTensors& tensors) {
  if (!tensors.parameters.empty()) return tensors.parameters[0].device();
  return tensors.buffers.empty() ? c10::Device(c10::kCPU) : tensors.buffers[0].device();
}

std::vector<Stacked> name_stacks(const ModuleTensors& tensors, const std::vector<Leaf>& leaves, bool parameters) {
  std::vector<Stacked> named;
  const auto names = first_names(tensors, parameters);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool trainable = parameters && tensors.parameters[i].requires_grad();
    named.push_back({names[i], leaves[i].stack.set_requires_grad(trainable), trainable, leaves[i].shared});
  }
  return named;
}

}  // namespace

at::Generator& LaneEntry::generator(c10::Device device) {
  for (auto& known : generators)
    if (known.device() == device) return known;
  return generators.emplace_back(base::seeded_generator(seed, device));
}

LaneEntry& ArrayBase::State::at(std::int64_t lane) {
  HFTA_CHECK(lane >= 0 && lane < count(), "lanes::Array: expected a lane from 0 to ", count() - 1, ", got ", lane);
  return lanes[static_cast<std::size_t>(lane)];
}

ArrayBase::State::Stacks ArrayBase::State::moved(const std::vector<std::int64_t>& from, Target target) const {
  const auto count = static_cast<std::int64_t>(from.size());
  const auto options_of = [&](const at::Tensor& tensor) {
    auto options = tensor.options().requires_grad(false);
    if (target.device) options = options.device(*target.device);
    if (target.type && tensor.is_floating_point()) options = options.dtype(*target.type);
    return options;
  };
  const auto move_rows = [&](const at::Tensor& stack) {
    const auto rows = allocate_rows(row(stack, 0), count, options_of(stack));
    copy_rows(stack, rows, from);
    return rows;
  };
  const auto move = [&](const Stacked& stacked) -> Leaf {
    if (stacked.shared.defined()) return leaf_of_one(stacked.shared.to(options_of(stacked.shared)), count);
    return {move_rows(stacked.tensor), at::Tensor()};
  };
  Stacks stacks;
  for (const auto& p : parameters) {
    stacks.parameters.push_back(move(p));
    stacks.gradients.push_back(p.tensor.grad().defined() ? move_rows(p.tensor.grad()) : at::Tensor());
  }
  for (const auto& b : buffers) stacks.buffers.push_back(move(b));
  return stacks;
}

void ArrayBase::State::check_own(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& added, const Stacks& stacks) const {
  for (const auto* others : {&lanes, &added})
    for (const auto& other : *others)
      HFTA_CHECK(other.module != entry.module, "lanes::Array: expected the factory to build a module of its own for lane ", lane, ", got that of an earlier lane");
  std::vector<Leaf> taken = stacks.parameters;
  taken.insert(taken.end(), stacks.buffers.begin(), stacks.buffers.end());
  for (const auto* stacked : {&parameters, &buffers})
    for (const auto& s : *stacked) taken.push_back({s.tensor, s.shared});
  // Earlier lanes look at the stacks by now, so a tensor object that is theirs too does so as well.
  for (const auto& r : entry.tensors.registrations) {
    const auto& tensor = entry.tensors.at(r.is_parameter, r.index);
    for (const auto& leaf : taken) {
      HFTA_CHECK(!tensor.is_alias_of(leaf.stack), "lanes::Array: expected a tensor of its own for \"", r.name, "\" of lane ", lane, ", got one of an earlier lane");
      HFTA_CHECK(!leaf.shared.defined() || tensor.const_data_ptr() != leaf.shared.const_data_ptr(), "lanes::Array: expected a tensor of its own for \"", r.name,
                 "\" of lane ", lane, ", got one of an earlier lane (give each lane a copy: what is frozen and equal is stored once)");
    }
  }
}

std::pair<ArrayBase::Module, ModuleTensors> ArrayBase::State::build_lane(const Factory& factory, std::int64_t lane, const at::Generator& generator) const {
  auto module = build_module(factory, lane, generator);
  auto tensors = tensors_of(*module, lane);
  each_tensor(tensors, [&](bool parameter, std::size_t i, const at::Tensor& tensor) {
    if (type && tensor.is_floating_point()) place(tensors, parameter, i, tensor.detach().to(*type));
  });
  return {std::move(module), std::move(tensors)};
}

void ArrayBase::State::begin(Stacks& stacks, const ModuleTensors& first, std::int64_t total) {
  const auto leaf = [&](const at::Tensor& single, bool frozen) {
    return frozen && total > 1 && single.numel() > 0 ? leaf_of_one(value_to_share(single), total) : leaf_of_rows(single, total, single.options());
  };
  for (const auto& p : first.parameters) stacks.parameters.push_back(leaf(p, !p.requires_grad()));
  const auto frozen = buffers_of_frozen_parts(first);
  for (std::size_t b = 0; b < frozen.size(); ++b) stacks.buffers.push_back(leaf(first.buffers[b], frozen[b]));
}

void ArrayBase::State::take_in(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& entries, Stacks& stacks) const {
  const at::NoGradGuard no_grad;
  const auto before = count();
  each_tensor(entry.tensors, [&](bool parameter, std::size_t i, const at::Tensor& own) {
    auto& leaf = (parameter ? stacks.parameters : stacks.buffers)[i];
    if (leaf.shared.defined() && same_bits(leaf.shared, own)) return;
    if (leaf.shared.defined()) {
      const auto shared = std::exchange(leaf, leaf_of_rows(leaf.shared, leaf.stack.size(0), leaf.shared.options())).shared;
      for (std::int64_t earlier = 0; earlier < lane; ++earlier) {
        row(leaf.stack, earlier).copy_(shared);
        if (earlier >= before) place(entries[earlier - before].tensors, parameter, i, row(leaf.stack, earlier));
      }
    }
    row(leaf.stack, lane).copy_(own);
  });
  place_all(entry, stacks.parameters, stacks.buffers, lane);
}

std::vector<LaneEntry> ArrayBase::State::build(const Factory& factory, std::span<const std::uint64_t> new_seeds, std::int64_t first, std::int64_t total,
                                               Stacks& stacks) const {
  std::vector<LaneEntry> entries;
  std::int64_t freed_bytes = 0;
  for (std::size_t i = 0; i < new_seeds.size(); ++i) {
    const auto lane = first + static_cast<std::int64_t>(i);
    LaneEntry entry{.module = nullptr, .seed = new_seeds[i], .generators = {base::seeded_generator(new_seeds[i])}, .tensors = {}};
    std::tie(entry.module, entry.tensors) = build_lane(factory, lane, entry.generators[0]);
    if (lane == 0) {
      for (const auto& name : held_elsewhere(entry.tensors))
        base::log_once(base::LogLevel::Warning, base::message("lanes::Array: the memory of \"", name, "\" is also held by tensors that the module does not register: ",
                                                             "these keep the values that they have now"));
      begin(stacks, entry.tensors, total);
    } else {
      check_same_layout((lanes.empty() ? entries : lanes)[0].tensors, entry.tensors, lane);
      check_own(entry, lane, entries, stacks);
    }
    take_in(entry, lane, entries, stacks);
    freed_bytes += bytes_of(entry.tensors);
    if (freed_bytes > kFreedBytes) base::return_freed_memory(), freed_bytes = 0;
    entries.push_back(std::move(entry));
  }
  return entries;
}

void ArrayBase::State::list_lanes() {
  seeds.clear();
  roster->modules.clear();
  for (const auto& entry : lanes) {
    seeds.push_back(entry.seed);
    roster->modules.push_back(entry.module);
  }
}

void ArrayBase::State::commit(Stacks stacks, std::vector<LaneEntry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto lane = static_cast<std::int64_t>(i);
    place_all(entries[i], stacks.parameters, stacks.buffers, lane);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (auto& own = entries[i].tensors.parameters[p].mutable_grad(); own.defined() && stacks.gradients[p].defined()) own = row(stacks.gradients[p], lane);
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].tensor = stacks.parameters[p].stack.set_requires_grad(parameters[p].trainable);
    parameters[p].shared = stacks.parameters[p].shared;
    parameters[p].tensor.mutable_grad() = attached[p] = stacks.gradients[p];
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) buffers[b].tensor = stacks.buffers[b].stack, buffers[b].shared = stacks.buffers[b].shared;
  lanes = std::move(entries);
  list_lanes();
  ++generation;
}

void ArrayBase::State::replace(const Target& target) {
  std::vector<std::int64_t> from(lanes.size());
  std::iota(from.begin(), from.end(), 0);
  auto stacks = moved(from, target);
  commit(std::move(stacks), std::move(lanes));
  for (auto* follower : std::vector(followers)) follower->tensors_replaced();
}

ArrayBase::ArrayBase(const Factory& factory, std::vector<std::uint64_t> seeds) : state_(std::make_unique<State>()) {
  HFTA_CHECK(!seeds.empty(), "lanes::Array: expected at least one lane, got none");
  State::Stacks stacks;
  state_->lanes = state_->build(factory, seeds, 0, static_cast<std::int64_t>(seeds.size()), stacks);
  const auto& tensors = state_->lanes[0].tensors;
  state_->registrations = tensors.registrations;
  state_->device = device_of(tensors);
  state_->parameters = name_stacks(tensors, stacks.parameters, true);
  state_->buffers = name_stacks(tensors, stacks.buffers, false);
  state_->attached.resize(state_->parameters.size());
  state_->list_lanes();
}

ArrayBase::~ArrayBase() = default;

std::int64_t ArrayBase::lanes() const { return state_->count(); }
const std::vector<std::uint64_t>& ArrayBase::seeds() const { return state_->seeds; }
std::uint64_t ArrayBase::generation() const { return state_->generation; }
c10::Device ArrayBase::device() const { return state_->device; }
const std::vector<Stacked>& ArrayBase::parameters() const { return state_->parameters; }
const std::vector<Stacked>& ArrayBase::buffers() const { return state_->buffers; }
const std::vector<Registration>& ArrayBase::registrations() const { return state_->registrations; }
const ArrayBase::Module& ArrayBase::module(std::int64_t lane) const { return state_->at(lane).module; }
const std::vector<at::Tensor>& ArrayBase::lane_parameters(std::int64_t lane) const { return state_->at(lane).tensors.parameters; }
const std::vector<at::Tensor>& ArrayBase::lane_buffers(std::int64_t lane) const { return state_->at(lane).tensors.buffers; }

at::Generator& ArrayBase::generator(std::int64_t lane) { return state_->at(lane).generator(state_->device); }

void ArrayBase::train(bool on) {
  for (auto& entry : state_->lanes) entry.module->train(on);
}

bool ArrayBase::is_training() const { return state_->lanes[0].module->is_training(); }

void ArrayBase::to(c10::Device device) {
  HFTA_CHECK(!device.is_meta(), "lanes::Array: expected a device with memory, got meta");
  try {
    device = at::empty({1}, at::TensorOptions(at::kByte).device(device)).device();
  } catch (const c10::Error&) {
    throw Unsupported(base::message("lanes::Array: expected a device that is there, got ", device));
  }
  if (device == state_->device) return;
  settle();
  stack_gradients();
  const auto before = std::exchange(state_->device, device);
  try {
    state_->replace({.device = device});
  } catch (...) {
    state_->device = before;
    throw;
  }
}

void ArrayBase::to(at::ScalarType type) {
  HFTA_CHECK(at::isFloatingType(type), "lanes::Array: expected a floating type, got ", type);
  settle();
  stack_gradients();
  state_->replace({.type = type});
  state_->type = type;
}

void ArrayBase::keep(const std::vector<std::int64_t>& kept) {
  HFTA_CHECK(!kept.empty(), "lanes::Array: expected at least one lane to keep, got none");
  std::vector<bool> is_kept(lanes());
  for (const auto lane : kept) {
    state_->at(lane);
    HFTA_CHECK(!is_kept[lane], "lanes::Array: expected each lane at most once in keep(), got lane ", lane, " twice");
    is_kept[lane] = true;
  }
  settle();
  stack_gradients();
  auto stacks = state_->moved(kept);
  for (std::int64_t lane = 0; lane < lanes(); ++lane)
    if (!is_kept[lane]) detach_module(state_->lanes[lane], parameters(), buffers());
  std::vector<LaneEntry> entries;
  for (const auto lane : kept) entries.push_back(std::move(state_->lanes[lane]));
  state_->commit(std::move(stacks), std::move(entries));
  for (auto* follower : std::vector(state_->followers)) follower->lanes_moved(kept);
}

void ArrayBase::append(const Factory& factory, const std::vector<std::uint64_t>& seeds) {
  if (seeds.empty()) return;
  const auto before = lanes(), total = before + static_cast<std::int64_t>(seeds.size());
  std::vector<std::int64_t> from(total, -1);
  std::iota(from.begin(), from.begin() + before, 0);
  settle();
  stack_gradients();
  auto stacks = state_->moved(from);
  auto added = state_->build(factory, seeds, before, total, stacks);
  for (auto& entry : added) entry.module->train(is_training());
  auto entries = std::move(state_->lanes);
  std::move(added.begin(), added.end(), std::back_inserter(entries));
  state_->commit(std::move(stacks), std::move(entries));
  for (auto* follower : std::vector(state_->followers)) follower->lanes_moved(from);
}

void ArrayBase::copy_lane(std::int64_t source, std::int64_t target) {
  auto &giver = state_->at(source), &taker = state_->at(target);
  if (source == target) return;
  settle();
  stack_gradients();
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const auto& p = parameters()[i];
    if (!p.shared.defined()) row(p.tensor, target).copy_(row(p.tensor, source));
    if (!p.tensor.grad().defined()) continue;
    row(p.tensor.grad(), target).copy_(row(p.tensor.grad(), source));
    taker.tensors.parameters[i].mutable_grad() = giver.tensors.parameters[i].grad().defined() ? row(p.tensor.grad(), target) : at::Tensor();
  }
  for (const auto& b : buffers())
    if (!b.shared.defined()) row(b.tensor, target).copy_(row(b.tensor, source));
  // Recordings hold the generators, so the objects stay and take over the state.
  for (auto& generator : giver.generators) taker.generator(generator.device()).set_state(generator.get_state());
  for (auto* follower : std::vector(state_->followers)) follower->lane_copied(source, target);
}

ArrayBase::Module ArrayBase::free_copy(std::int64_t lane, const Factory& factory) const {
  const auto& entry = state_->at(lane);
  const auto [module, tensors] = state_->build_lane(factory, lane, base::seeded_generator(entry.seed));
  check_same_layout(entry.tensors, tensors, lane);
  each_tensor(tensors, [&](bool parameter, std::size_t i, const at::Tensor&) { place(tensors, parameter, i, entry.tensors.at(parameter, i).detach().clone()); });
  module->train(entry.module->is_training());
  return module;
}

void ArrayBase::follow(LaneFollower* follower) { state_->followers.push_back(follower); }
void ArrayBase::unfollow(LaneFollower* follower) { std::erase(state_->followers, follower); }

}  // namespace hfta::lanes
