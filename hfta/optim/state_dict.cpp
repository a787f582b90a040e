#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <optional>

#include "hfta/base/error.h"
#include "hfta/lanes/rows.h"
#include "hfta/optim/optimizer_state.h"

namespace hfta::optim {
namespace {

using Dict = c10::impl::GenericDict;

Dict dict_by_name() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

std::optional<c10::IValue> find(const Dict& dict, const c10::IValue& key) {
  const auto found = dict.find(key);
  return found == dict.end() ? std::nullopt : std::optional(found->value());
}

std::string known_keys(const Dict& dict) {
  std::string keys;
  for (const auto& entry : dict) keys += (keys.empty() ? "" : ", ") + (entry.key().isString() ? entry.key().toStringRef() : base::message(entry.key()));
  return keys.empty() ? "none" : keys;
}

/// Elements of a list or a tuple: files and other languages make one of the other.
std::optional<std::vector<c10::IValue>> sequence(const c10::IValue& value) {
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  if (!value.isList()) return std::nullopt;
  std::vector<c10::IValue> elements;
  for (const auto& element : value.toListRef()) elements.push_back(element);
  return elements;
}

std::optional<double> number(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 1) return value.toTensor().item<double>();
  return std::nullopt;
}

/// What a state dict says about one parameter of the lane.
struct LoadedParameter {
  std::int64_t step = 0;
  std::vector<at::Tensor> slots;  ///< Empty: no state.
};

/// Reads a state dict against what the optimizer has; nothing is written.
class Reader {
 public:
  Reader(const Definition& definition, const std::vector<lanes::Stacked>& parameters, const std::vector<std::size_t>& order, const std::vector<std::size_t>& group_of)
      : definition_(definition), parameters_(parameters), order_(order), group_of_(group_of), title_("optim::" + definition.name) {}

  std::vector<std::vector<double>> hyper;  ///< By group.
  std::vector<LoadedParameter> loaded;     ///< By parameter of the array.

  void read(const c10::IValue& value, std::size_t groups) {
    HFTA_CHECK(value.isGenericDict(), title_, ": expected a state dict with \"state\" and \"param_groups\", got ", value.tagKind());
    const auto dict = value.toGenericDict();
    const auto state = find(dict, "state"), all = find(dict, "param_groups");
    HFTA_CHECK(state && state->isGenericDict() && all && sequence(*all), title_, ": expected a state dict with \"state\" and \"param_groups\", got keys ", known_keys(dict));
    const auto given = *sequence(*all);
    HFTA_CHECK(given.size() == groups, title_, ": expected ", groups, " parameter groups, got ", given.size());
    for (std::size_t g = 0; g < groups; ++g) read_group(given[g], g);
    loaded.resize(parameters_.size());
    for (const auto& entry : state->toGenericDict()) read_state(entry.key(), entry.value());
  }

 private:
  void read_group(const c10::IValue& value, std::size_t g) {
    HFTA_CHECK(value.isGenericDict(), title_, ": expected parameter group ", g, " as a dict, got ", value.tagKind());
    const auto group = value.toGenericDict();
    const auto params = find(group, "params");
    const auto members = params ? sequence(*params) : std::nullopt;
    const auto expected = std::count(group_of_.begin(), group_of_.end(), g);
    HFTA_CHECK(members && static_cast<std::int64_t>(members->size()) == expected, title_, ": expected parameter group ", g, " with ", expected, " parameters, got ",
               members ? members->size() : 0);
    for (const auto& member : *members) {
      HFTA_CHECK(member.isInt(), title_, ": expected parameter indices in parameter group ", g, ", got ", member.tagKind());
      indices_.push_back(member.toInt());
    }
    auto& numbers = hyper.emplace_back(definition_.hyper.size());
    for (const auto& key : definition_.group_keys) read_key(group, key, g, numbers);
  }

  void read_key(const Dict& group, const GroupKey& key, std::size_t g, std::vector<double>& numbers) {
    const auto value = find(group, key.name);
    if (key.name == "betas") {
      const auto both = value ? sequence(*value) : std::nullopt;
      HFTA_CHECK(both && both->size() == 2 && number((*both)[0]) && number((*both)[1]), title_, ": expected two numbers as \"betas\" of parameter group ", g, ", got ",
                 value ? base::message(*value) : "none");
      numbers[index_of("beta1")] = *number((*both)[0]);
      numbers[index_of("beta2")] = *number((*both)[1]);
    } else if (const auto h = index_of(key.name); h < definition_.hyper.size()) {
      HFTA_CHECK(value && number(*value), title_, ": expected a number as \"", key.name, "\" of parameter group ", g, ", got ", value ? base::message(*value) : "none");
      numbers[h] = *number(*value);
    } else if (key.must_match && value) {
      HFTA_CHECK(value->isBool() && value->toBool() == key.constant.toBool(), title_, ": expected \"", key.name, "\" of parameter group ", g, " ",
                 key.constant.toBool() ? "true" : "false", " as this optimizer's, got ", *value);
    }
  }

  std::size_t index_of(const std::string& name) const {
    std::size_t h = 0;
    while (h < definition_.hyper.size() && definition_.hyper[h].name != name) ++h;
    return h;
  }

  void read_state(const c10::IValue& key, const c10::IValue& value) {
    const auto place = key.isInt() ? std::find(indices_.begin(), indices_.end(), key.toInt()) : indices_.end();
    HFTA_CHECK(place != indices_.end(), title_, ": expected state of parameters that the groups list, got ", key);
    const auto parameter = order_[static_cast<std::size_t>(place - indices_.begin())];
    const auto& name = parameters_[parameter].name;
    HFTA_CHECK(value.isGenericDict(), title_, ": expected the state of \"", name, "\" as a dict, got ", value.tagKind());
    const auto state = value.toGenericDict();
    for (const auto& entry : state)
      HFTA_CHECK(entry.key().isString() && knows(entry.key().toStringRef()), title_, ": expected state of \"", name, "\" with ", slot_names(), ", got ", known_keys(state));
    auto& into = loaded[parameter];
    for (const auto& slot : definition_.slots) {
      const auto tensor = find(state, slot);
      if (!tensor || tensor->isNone()) continue;
      const auto expected = parameters_[parameter].tensor.sizes().slice(1);
      HFTA_CHECK(tensor->isTensor() && tensor->toTensor().sizes() == expected, title_, ": expected \"", slot, "\" of \"", name, "\" of shape ", expected, ", got ",
                 tensor->isTensor() ? base::message(tensor->toTensor().sizes()) : tensor->tagKind());
      into.slots.push_back(tensor->toTensor().detach());
    }
    if (into.slots.empty() && state.empty()) return;
    const bool none_yet = into.slots.empty() && !definition_.has_step;
    HFTA_CHECK(none_yet || into.slots.size() == definition_.slots.size(), title_, ": expected state of \"", name, "\" with ", slot_names(), ", got ", known_keys(state));
    if (!definition_.has_step) return;
    const auto step = find(state, "step");
    HFTA_CHECK(step && number(*step) && *number(*step) >= 0, title_, ": expected a step count in the state of \"", name, "\", got ", step ? base::message(*step) : "none");
    into.step = static_cast<std::int64_t>(*number(*step));
  }

  bool knows(const std::string& key) const {
    return (definition_.has_step && key == "step") || std::find(definition_.slots.begin(), definition_.slots.end(), key) != definition_.slots.end();
  }

  std::string slot_names() const {
    std::string names = definition_.has_step ? "step" : "";
    for (const auto& slot : definition_.slots) names += (names.empty() ? "" : ", ") + slot;
    return names;
  }

  const Definition& definition_;
  const std::vector<lanes::Stacked>& parameters_;
  const std::vector<std::size_t>&order_, &group_of_;
  std::string title_;
  std::vector<std::int64_t> indices_;  ///< The state dict's number of each parameter, in `order_`.
};

}  // namespace

c10::IValue Optimizer::lane_state_dict(std::int64_t lane) const {
  const auto& s = *state_;
  s.check_lane(lane);
  const at::NoGradGuard no_grad;
  const auto at_lane = static_cast<std::size_t>(lane);
  Dict state(c10::IntType::get(), c10::AnyType::get());
  for (std::size_t i = 0; i < s.order.size(); ++i) {
    const auto& parameter = s.parameters[s.order[i]];
    if (!parameter.has_state[at_lane]) continue;
    auto entry = dict_by_name();
    if (s.definition.has_step) entry.insert("step", at::full({}, static_cast<double>(parameter.steps[at_lane]), at::kFloat));
    for (std::size_t k = 0; k < parameter.slots.size(); ++k) entry.insert(s.definition.slots[k], lanes::row(parameter.slots[k], lane).clone());
    state.insert(static_cast<std::int64_t>(i), entry);
  }
  c10::impl::GenericList groups(c10::AnyType::get());
  std::int64_t index = 0;
  for (std::size_t g = 0; g < s.groups.size(); ++g) {
    const auto hyper = s.hyper(g, lane);
    const auto value_of = [&](const std::string& name) { return hyper[s.index_of(name)]; };
    auto group = dict_by_name();
    for (const auto& key : s.definition.group_keys) {
      const bool is_hyper = std::any_of(s.definition.hyper.begin(), s.definition.hyper.end(), [&](const Hyper& h) { return h.name == key.name; });
      if (key.name == "betas")
        group.insert(key.name, c10::ivalue::Tuple::create({value_of("beta1"), value_of("beta2")}));
      else
        group.insert(key.name, is_hyper ? c10::IValue(value_of(key.name)) : key.constant);
    }
    c10::impl::GenericList members(c10::AnyType::get());
    for (auto count = std::count(s.group_of.begin(), s.group_of.end(), g); count > 0; --count) members.push_back(index++);
    group.insert("params", members);
    groups.push_back(group);
  }
  auto result = dict_by_name();
  result.insert("state", state);
  result.insert("param_groups", groups);
  return result;
}

void Optimizer::load_lane_state_dict(std::int64_t lane, const c10::IValue& value) {
  auto& s = *state_;
  s.check_lane(lane);
  Reader reader(s.definition, s.array.parameters(), s.order, s.group_of);
  reader.read(value, s.groups.size());
  for (const auto& numbers : reader.hyper)
    for (std::size_t h = 0; h < numbers.size(); ++h) s.check_value(h, numbers[h], lane);

  const at::NoGradGuard no_grad;
  const auto at_lane = static_cast<std::size_t>(lane);
  for (std::size_t g = 0; g < s.groups.size(); ++g) std::copy(reader.hyper[g].begin(), reader.hyper[g].end(), s.groups[g].hyper.begin() + static_cast<std::int64_t>(at_lane * s.hypers()));
  std::int64_t most = 0;
  for (std::size_t p = 0; p < s.parameters.size(); ++p) {
    auto& parameter = s.parameters[p];
    const auto& loaded = reader.loaded[p];
    if (!loaded.slots.empty()) s.allocate(p);
    for (std::size_t k = 0; k < parameter.slots.size(); ++k) {
      const auto row = lanes::row(parameter.slots[k], lane);
      loaded.slots.empty() ? row.zero_() : row.copy_(loaded.slots[k]);
    }
    parameter.has_state[at_lane] = !loaded.slots.empty();
    if (s.definition.has_step) parameter.steps[at_lane] = loaded.step;
    most = std::max(most, loaded.step);
  }
  if (s.definition.has_step) s.steps[at_lane] = most;
}

}  // namespace hfta::optim
