#include "hfta/lanes/state.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include <vector>

#include "hfta/base/error.h"
#include "hfta/lanes/archive.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

using Dict = c10::impl::GenericDict;

Dict new_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }

struct Write {
  at::Tensor target, value;
};

/// Collects what is to be written, so that nothing is before all of it is known to fit.
class StrictReader {
 public:
  StrictReader(const c10::IValue& state, std::string subject) : subject_(std::move(subject)), dict_(new_dict()) {
    HFTA_CHECK(state.isGenericDict(), subject_, ": expected a dict of tensors, got ", state.tagKind());
    dict_ = state.toGenericDict();
  }

  void take(const std::string& name, const at::Tensor& target) {
    const auto found = dict_.find(name);
    HFTA_CHECK(found != dict_.end(), subject_, ": expected \"", name, "\", got none (there are ", names(), ")");
    ++taken_;
    HFTA_CHECK(found->value().isTensor(), subject_, ": expected \"", name, "\" as a tensor, got ", found->value().tagKind());
    const auto& value = found->value().toTensor();
    HFTA_CHECK(value.defined() && value.sizes() == target.sizes() && value.scalar_type() == target.scalar_type(), subject_, ": expected \"", name, "\" as ",
               target.scalar_type(), " ", target.sizes(), ", got ", value.scalar_type(), " ", value.sizes());
    for (const auto& write : writes_)
      if (write.target.is_alias_of(target) && write.target.storage_offset() == target.storage_offset())
        HFTA_CHECK(write.value.is_same(value) || at::equal(write.value, value), subject_, ": expected \"", name, "\" as the tensor it is tied to, got another");
    writes_.push_back({target, value});
  }

  void finish(const std::vector<Registration>& known) const {
    if (taken_ == dict_.size()) return;
    for (const auto& entry : dict_) {
      const auto name = entry.key().isString() ? entry.key().toStringRef() : base::message(entry.key());
      bool is_known = false;
      for (const auto& r : known) is_known |= r.name == name;
      HFTA_CHECK(is_known, subject_, ": expected the model's tensors only, got \"", name, "\" too");
    }
  }

  at::Tensor value(const std::string& name) const { return dict_.at(name).toTensor().detach(); }

  void write() const {
    const at::NoGradGuard no_grad;
    for (const auto& w : writes_) w.target.copy_(w.value.detach());
  }

 private:
  std::string names() const {
    std::string all;
    for (const auto& entry : dict_) all += (all.empty() ? "" : ", ") + (entry.key().isString() ? entry.key().toStringRef() : base::message(entry.key()));
    return all;
  }

  std::string subject_;
  Dict dict_;
  std::size_t taken_ = 0;
  std::vector<Write> writes_;
};

/// A lane's own tensor: its row, or its lazy copy of what all lanes share, which may be written too.
at::Tensor tensor_of_lane(const ArrayBase& array, const Registration& r, std::int64_t lane) {
  const auto& stacked = (r.is_parameter ? array.parameters() : array.buffers())[r.index];
  if (!stacked.shared.defined()) return row(stacked.tensor, lane);
  return (r.is_parameter ? array.lane_parameters(lane) : array.lane_buffers(lane))[r.index].detach();
}

void load_into(ArrayBase& array, std::int64_t lane, const c10::IValue& state, const std::string& subject) {
  array.module(lane);
  StrictReader reader(state, subject);
  for (const auto& r : array.registrations()) reader.take(r.name, tensor_of_lane(array, r, lane));
  reader.finish(array.registrations());
  reader.write();
  array.settle();
}

Dict stacks_dict(const std::vector<Stacked>& stacks) {
  auto dict = new_dict();
  for (const auto& stack : stacks) dict.insert(stack.name, stack.tensor.detach());
  return dict;
}

const c10::IValue& entry(const Dict& dict, const std::string& name) {
  const auto found = dict.find(name);
  HFTA_CHECK(found != dict.end(), "lanes::load_array_state: expected \"", name, "\", got none");
  return found->value();
}

std::vector<at::Tensor> generator_states(ArrayBase& array, const Dict& dict) {
  const auto& list = entry(dict, "generators");
  HFTA_CHECK(list.isList() && static_cast<std::int64_t>(list.toListRef().size()) == array.lanes(), "lanes::load_array_state: expected ", array.lanes(), " generators, got others");
  std::vector<at::Tensor> states;
  for (std::int64_t lane = 0; lane < array.lanes(); ++lane) {
    const c10::IValue state = list.toListRef()[lane];
    HFTA_CHECK(state.isTensor() && state.toTensor().scalar_type() == at::kByte && state.toTensor().sizes() == array.generator(lane).get_state().sizes(),
               "lanes::load_array_state: expected the state of lane ", lane, "'s generator on ", array.device(), ", got another");
    states.push_back(state.toTensor());
  }
  return states;
}

}  // namespace

c10::IValue lane_state_dict(const ArrayBase& array, std::int64_t lane) {
  array.module(lane);
  auto dict = new_dict();
  for (const auto& r : array.registrations()) dict.insert(r.name, tensor_of_lane(array, r, lane));
  return dict;
}

void load_lane_state_dict(ArrayBase& array, std::int64_t lane, const c10::IValue& state) { load_into(array, lane, state, "lanes::load_lane_state_dict"); }

void save_lane(const ArrayBase& array, std::int64_t lane, const std::string& path) { save_archive(path, lane_state_dict(array, lane)); }

void load_lane(ArrayBase& array, std::int64_t lane, const std::string& path) { load_into(array, lane, load_archive(path), base::message("lanes::load_lane(\"", path, "\")")); }

c10::IValue array_state(ArrayBase& array) {
  array.settle();
  c10::impl::GenericList seeds(c10::AnyType::get()), generators(c10::AnyType::get());
  for (std::int64_t lane = 0; lane < array.lanes(); ++lane) {
    seeds.push_back(static_cast<std::int64_t>(array.seeds()[lane]));
    generators.push_back(array.generator(lane).get_state());
  }
  auto dict = new_dict();
  dict.insert("seeds", seeds);
  dict.insert("parameters", stacks_dict(array.parameters()));
  dict.insert("buffers", stacks_dict(array.buffers()));
  dict.insert("generators", generators);
  return dict;
}

void load_array_state(ArrayBase& array, const c10::IValue& state) {
  HFTA_CHECK(state.isGenericDict(), "lanes::load_array_state: expected a dict, got ", state.tagKind());
  const auto dict = state.toGenericDict();
  const auto& seeds = entry(dict, "seeds");
  HFTA_CHECK(seeds.isList() && static_cast<std::int64_t>(seeds.toListRef().size()) == array.lanes(), "lanes::load_array_state: expected ", array.lanes(), " lanes, got ",
             seeds.isList() ? seeds.toListRef().size() : 0);
  for (std::int64_t lane = 0; lane < array.lanes(); ++lane)
    HFTA_CHECK(seeds.toListRef()[lane].isInt() && static_cast<std::uint64_t>(seeds.toListRef()[lane].toInt()) == array.seeds()[lane],
               "lanes::load_array_state: expected lane ", lane, " with seed ", array.seeds()[lane], ", got ", seeds.toListRef()[lane]);
  StrictReader parameters(entry(dict, "parameters"), "lanes::load_array_state"), buffers(entry(dict, "buffers"), "lanes::load_array_state");
  array.settle();
  for (const auto& p : array.parameters()) parameters.take(p.name, p.tensor.detach());
  for (const auto& b : array.buffers()) buffers.take(b.name, b.tensor);
  parameters.finish(array.registrations());
  buffers.finish(array.registrations());
  const auto generators = generator_states(array, dict);
  for (const auto& p : array.parameters()) array.write(p, parameters.value(p.name));
  for (const auto& b : array.buffers()) array.write(b, buffers.value(b.name));
  for (std::int64_t lane = 0; lane < array.lanes(); ++lane) array.generator(lane).set_state(generators[lane]);
}

}  // namespace hfta::lanes
