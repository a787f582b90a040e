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
#include "hfta/lanes/array_state.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

/// Visits each of an entry's tensor objects with the index of its stack.
template <typename Visit>
void each_tensor(const ModuleTensors& tensors, const Visit& visit) {
  for (std::size_t i = 0; i < tensors.parameters.size(); ++i) visit(true, i, tensors.parameters[i]);
  for (std::size_t i = 0; i < tensors.buffers.size(); ++i) visit(false, i, tensors.buffers[i]);
  for (const auto& alias : tensors.aliases) visit(alias.of_parameter, alias.index, alias.tensor);
}

/// Gives the module memory of its own: it no longer belongs to the array.
void detach_module(const LaneEntry& entry) {
  std::vector<at::Tensor> parameters, buffers;
  for (const auto& p : entry.tensors.parameters) {
    parameters.push_back(p.detach().clone());
    if (p.grad().defined()) p.mutable_grad() = p.grad().detach().clone();
  }
  for (const auto& b : entry.tensors.buffers) buffers.push_back(b.detach().clone());
  each_tensor(entry.tensors, [&](bool parameter, std::size_t i, const at::Tensor& tensor) { look_at(tensor, (parameter ? parameters : buffers)[i]); });
}

/// Builds one lane's module while the default generator is the lane's.
ArrayBase::Module build_module(const ArrayBase::Factory& factory, std::int64_t lane, const at::Generator& generator) {
  const base::DefaultGeneratorScope scope(generator);
  auto module = factory(lane);
  HFTA_CHECK(module != nullptr, "lanes::Array: expected the factory to build lane ", lane, ", got no module");
  return module;
}

/// Makes a lane's tensors look at row `lane` of the stacks.
void place(const LaneEntry& entry, const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers, std::int64_t lane) {
  each_tensor(entry.tensors, [&](bool parameter, std::size_t i, const at::Tensor& tensor) { look_at(tensor, row((parameter ? parameters : buffers)[i], lane)); });
}

c10::Device device_of(const ModuleTensors& tensors) {
  if (!tensors.parameters.empty()) return tensors.parameters[0].device();
  return tensors.buffers.empty() ? c10::Device(c10::kCPU) : tensors.buffers[0].device();
}

std::vector<Stacked> name_stacks(const ModuleTensors& tensors, std::vector<at::Tensor> stacks, bool parameters) {
  std::vector<Stacked> named;
  const auto names = first_names(tensors, parameters);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    const bool trainable = parameters && tensors.parameters[i].requires_grad();
    named.push_back({names[i], stacks[i].set_requires_grad(trainable), trainable});
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
  const auto move = [&](const at::Tensor& stack) {
    auto options = stack.options().requires_grad(false);
    if (target.device) options = options.device(*target.device);
    if (target.type && stack.is_floating_point()) options = options.dtype(*target.type);
    const auto result = allocate_rows(row(stack, 0), static_cast<std::int64_t>(from.size()), options);
    copy_rows(stack, result, from);
    return result;
  };
  Stacks stacks;
  for (const auto& p : parameters) {
    stacks.parameters.push_back(move(p.tensor));
    stacks.gradients.push_back(p.tensor.grad().defined() ? move(p.tensor.grad()) : at::Tensor());
  }
  for (const auto& b : buffers) stacks.buffers.push_back(move(b.tensor));
  return stacks;
}

void ArrayBase::State::check_own(const LaneEntry& entry, std::int64_t lane, const std::vector<LaneEntry>& added, const Stacks& stacks) const {
  for (const auto* others : {&lanes, &added})
    for (const auto& other : *others)
      HFTA_CHECK(other.module != entry.module, "lanes::Array: expected the factory to build a module of its own for lane ", lane, ", got that of an earlier lane");
  std::vector<at::Tensor> taken = stacks.parameters;
  taken.insert(taken.end(), stacks.buffers.begin(), stacks.buffers.end());
  for (const auto& p : parameters) taken.push_back(p.tensor);
  for (const auto& b : buffers) taken.push_back(b.tensor);
  // Earlier lanes look at the stacks by now, so a tensor object that is theirs too does so as well.
  for (const auto& r : entry.tensors.registrations) {
    const auto& tensor = (r.is_parameter ? entry.tensors.parameters : entry.tensors.buffers)[r.index];
    for (const auto& stack : taken)
      HFTA_CHECK(!tensor.is_alias_of(stack), "lanes::Array: expected a tensor of its own for \"", r.name, "\" of lane ", lane, ", got one of an earlier lane");
  }
}

std::pair<ArrayBase::Module, ModuleTensors> ArrayBase::State::build_lane(const Factory& factory, std::int64_t lane, const at::Generator& generator) const {
  auto module = build_module(factory, lane, generator);
  auto tensors = tensors_of(*module, lane);
  each_tensor(tensors, [&](bool, std::size_t, const at::Tensor& tensor) {
    if (type && tensor.is_floating_point()) look_at(tensor, tensor.detach().to(*type));
  });
  return {std::move(module), std::move(tensors)};
}

std::vector<LaneEntry> ArrayBase::State::build(const Factory& factory, std::span<const std::uint64_t> new_seeds, std::int64_t first, std::int64_t total,
                                               Stacks& stacks) const {
  std::vector<LaneEntry> entries;
  for (std::size_t i = 0; i < new_seeds.size(); ++i) {
    const auto lane = first + static_cast<std::int64_t>(i);
    LaneEntry entry{.module = nullptr, .seed = new_seeds[i], .generators = {base::seeded_generator(new_seeds[i])}, .tensors = {}};
    std::tie(entry.module, entry.tensors) = build_lane(factory, lane, entry.generators[0]);
    if (lane == 0) {
      for (const auto& name : held_elsewhere(entry.tensors))
        base::log_once(base::LogLevel::Warning, base::message("lanes::Array: the memory of \"", name, "\" is also held by tensors that the module does not register: ",
                                                             "these keep the values that they have now"));
      for (const auto& p : entry.tensors.parameters) stacks.parameters.push_back(allocate_rows(p, total, p.options().requires_grad(false)));
      for (const auto& b : entry.tensors.buffers) stacks.buffers.push_back(allocate_rows(b, total, b.options().requires_grad(false)));
    } else {
      check_same_layout((lanes.empty() ? entries : lanes)[0].tensors, entry.tensors, lane);
      check_own(entry, lane, entries, stacks);
    }
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < stacks.parameters.size(); ++p) row(stacks.parameters[p], lane).copy_(entry.tensors.parameters[p]);
    for (std::size_t b = 0; b < stacks.buffers.size(); ++b) row(stacks.buffers[b], lane).copy_(entry.tensors.buffers[b]);
    place(entry, stacks.parameters, stacks.buffers, lane);
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
    place(entries[i], stacks.parameters, stacks.buffers, lane);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (auto& own = entries[i].tensors.parameters[p].mutable_grad(); own.defined() && stacks.gradients[p].defined()) own = row(stacks.gradients[p], lane);
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].tensor = stacks.parameters[p].set_requires_grad(parameters[p].trainable);
    parameters[p].tensor.mutable_grad() = attached[p] = stacks.gradients[p];
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) buffers[b].tensor = stacks.buffers[b];
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
  state_->parameters = name_stacks(tensors, std::move(stacks.parameters), true);
  state_->buffers = name_stacks(tensors, std::move(stacks.buffers), false);
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
  stack_gradients();
  auto stacks = state_->moved(kept);
  for (std::int64_t lane = 0; lane < lanes(); ++lane)
    if (!is_kept[lane]) detach_module(state_->lanes[lane]);
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
  stack_gradients();
  const at::NoGradGuard no_grad;
  for (const auto& p : parameters()) {
    row(p.tensor, target).copy_(row(p.tensor, source));
    if (p.tensor.grad().defined()) row(p.tensor.grad(), target).copy_(row(p.tensor.grad(), source));
  }
  for (const auto& b : buffers()) row(b.tensor, target).copy_(row(b.tensor, source));
  // Recordings hold the generators, so the objects stay and take over the state.
  for (auto& generator : giver.generators) taker.generator(generator.device()).set_state(generator.get_state());
  for (auto* follower : std::vector(state_->followers)) follower->lane_copied(source, target);
}

ArrayBase::Module ArrayBase::free_copy(std::int64_t lane, const Factory& factory) const {
  const auto& entry = state_->at(lane);
  const auto [module, tensors] = state_->build_lane(factory, lane, base::seeded_generator(entry.seed));
  check_same_layout(entry.tensors, tensors, lane);
  each_tensor(tensors, [&](bool parameter, std::size_t i, const at::Tensor& tensor) {
    look_at(tensor, row((parameter ? parameters() : buffers())[i].tensor, lane).clone());
  });
  module->train(entry.module->is_training());
  return module;
}

void ArrayBase::follow(LaneFollower* follower) { state_->followers.push_back(follower); }
void ArrayBase::unfollow(LaneFollower* follower) { std::erase(state_->followers, follower); }

}  // namespace hfta::lanes
