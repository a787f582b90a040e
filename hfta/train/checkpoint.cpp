#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>

#include "hfta/base/error.h"
#include "hfta/lanes/archive.h"
#include "hfta/train/trainer_state.h"

namespace hfta::train {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr const char* kKind = "hfta training";

c10::impl::GenericDict new_dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

template <typename Values, typename Convert>
c10::IValue list_of(const Values& values, Convert&& convert) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(convert(value));
  return list;
}

c10::IValue dict_of(const std::vector<lanes::Stacked>& stacks) {
  auto dict = new_dict();
  for (const auto& stack : stacks) dict.insert(stack.name, stack.tensor.detach());
  return dict;
}

c10::IValue saved(const LaneRecord& lane) {
  auto dict = new_dict();
  dict.insert("id", lane.id);
  dict.insert("state", std::string(name_of(lane.state)));
  dict.insert("reason", lane.reason);
  dict.insert("epochs", list_of(lane.epochs, [](const Metrics& metrics) -> c10::IValue {
                auto values = new_dict();
                for (const auto& [name, value] : metrics) values.insert(name, value);
                return values;
              }));
  return dict;
}

c10::IValue saved(const Trainer::State& s, const std::optional<plan::Plan>& plan) {
  auto dict = new_dict();
  dict.insert("format", kFormat);
  dict.insert("kind", std::string(kKind));
  dict.insert("epoch", s.epoch);
  dict.insert("lanes", list_of(s.records, [](const LaneRecord& lane) { return saved(lane); }));
  dict.insert("ids", list_of(s.ids, [](std::int64_t id) { return c10::IValue(id); }));
  dict.insert("seeds", list_of(s.first_seeds, [](std::uint64_t seed) { return c10::IValue(static_cast<std::int64_t>(seed)); }));
  dict.insert("plan", plan ? c10::IValue(to_json(*plan)) : c10::IValue());
  dict.insert("plan_reason", s.plan_reason);
  dict.insert("arrays", list_of(s.arrays, [](lanes::ArrayBase* array) -> c10::IValue {
                auto entry = new_dict();
                entry.insert("parameters", dict_of(array->parameters()));
                entry.insert("buffers", dict_of(array->buffers()));
                c10::impl::GenericList generators(c10::AnyType::get());
                for (std::int64_t lane = 0; lane < array->lanes(); ++lane) generators.push_back(array->generator(lane).get_state());
                entry.insert("generators", generators);
                return entry;
              }));
  dict.insert("optimizer", s.optimizer.name());
  c10::impl::GenericList optimizer(c10::AnyType::get());
  for (std::int64_t lane = 0; lane < s.lane_count(); ++lane) optimizer.push_back(s.optimizer.lane_state_dict(lane));
  dict.insert("optimizer_lanes", optimizer);
  dict.insert("schedules", list_of(s.options.schedules, [](const Scheduled& schedule) { return schedule.state ? schedule.state() : c10::IValue(); }));
  return dict;
}

// Reads a checkpoint's entries; whatever does not fit is told with the file's name.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), value_(lanes::load_archive(path)) {
    check(value_.isGenericDict(), "a checkpoint", "another kind of file");
    check(has("kind") && entry("kind").isString() && entry("kind").toStringRef() == kKind, "a checkpoint of a training run", "another kind of file");
    const auto format = integer("format");
    check(format == kFormat, base::message("format ", kFormat), base::message(format));
  }

  void check(bool good, const std::string& expected, const std::string& got) const {
    HFTA_CHECK(good, "train::Trainer: ", path_, ": expected ", expected, ", got ", got);
  }
  bool has(const std::string& key) const { return value_.toGenericDict().contains(key); }
  c10::IValue entry(const std::string& key) const {
    check(has(key), "the entry \"" + key + "\"", "none");
    return value_.toGenericDict().at(key);
  }
  std::int64_t integer(const std::string& key) const {
    const auto value = entry(key);
    check(value.isInt(), "an integer \"" + key + "\"", value.tagKind());
    return value.toInt();
  }
  std::string text(const std::string& key) const {
    const auto value = entry(key);
    check(value.isString(), "a string \"" + key + "\"", value.tagKind());
    return value.toStringRef();
  }
  std::vector<c10::IValue> list(const std::string& key) const {
    const auto value = entry(key);
    check(value.isList(), "a list \"" + key + "\"", value.tagKind());
    return value.toListRef().vec();
  }
  std::vector<std::int64_t> integers(const std::string& key) const {
    std::vector<std::int64_t> numbers;
    for (const auto& value : list(key)) {
      check(value.isInt(), "integers in \"" + key + "\"", value.tagKind());
      numbers.push_back(value.toInt());
    }
    return numbers;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  c10::IValue value_;
};

// A checkpoint, read and compared with the trainer before anything is written.
struct Loaded {
  std::int64_t epoch = 0;
  std::vector<LaneRecord> records;
  std::vector<std::int64_t> ids;
  std::optional<plan::Plan> plan;
  std::string plan_reason;
  struct ArrayTensors {
    std::vector<at::Tensor> parameters, buffers, generators;
  };
  std::vector<ArrayTensors> arrays;
  std::vector<c10::IValue> optimizer, schedules;
};

LaneRecord lane_record(const c10::IValue& value) {
  const auto dict = value.toGenericDict();
  LaneRecord lane{.id = dict.at("id").toInt(), .state = lane_state_of(dict.at("state").toStringRef()), .reason = dict.at("reason").toStringRef()};
  for (const auto& epoch : dict.at("epochs").toListRef()) {
    Metrics metrics;
    for (const auto& item : epoch.toGenericDict()) metrics[item.key().toStringRef()] = item.value().toDouble();
    lane.epochs.push_back(std::move(metrics));
  }
  return lane;
}

std::vector<at::Tensor> tensors(const Reader& reader, const c10::IValue& value, const std::vector<lanes::Stacked>& stacks, std::int64_t lanes) {
  const auto dict = value.toGenericDict();
  std::vector<at::Tensor> found;
  for (const auto& stack : stacks) {
    reader.check(dict.contains(stack.name), "the tensor \"" + stack.name + "\"", "none");
    const auto tensor = dict.at(stack.name).toTensor();
    auto shape = stack.tensor.sizes().vec();
    shape[0] = lanes;
    reader.check(tensor.sizes() == at::IntArrayRef(shape) && tensor.scalar_type() == stack.tensor.scalar_type(),
                 base::message("\"", stack.name, "\" as ", stack.tensor.scalar_type(), " ", at::IntArrayRef(shape)),
                 base::message(tensor.scalar_type(), " ", tensor.sizes()));
    found.push_back(tensor);
  }
  reader.check(dict.size() == stacks.size(), base::message(stacks.size(), " tensors"), base::message(dict.size()));
  return found;
}

void check_lanes(const Reader& reader, const Trainer::State& s, const Loaded& loaded) {
  std::vector<std::int64_t> seeds;
  for (const auto seed : s.first_seeds) seeds.push_back(static_cast<std::int64_t>(seed));
  reader.check(loaded.records.size() == s.records.size(), base::message(s.records.size(), " lanes"), base::message(loaded.records.size()));
  reader.check(reader.integers("seeds") == seeds, "lanes of this array's seeds", "others");
  for (std::size_t i = 0; i < loaded.records.size(); ++i) reader.check(loaded.records[i].id == static_cast<std::int64_t>(i), "lanes in order", "others");
  const bool good = !loaded.ids.empty() && std::is_sorted(loaded.ids.begin(), loaded.ids.end()) && loaded.ids.front() >= 0 &&
                    loaded.ids.back() < static_cast<std::int64_t>(s.records.size()) && std::adjacent_find(loaded.ids.begin(), loaded.ids.end()) == loaded.ids.end();
  reader.check(good, "ids of the array's lanes", "others");
  for (const auto id : loaded.ids)
    reader.check(std::find(s.ids.begin(), s.ids.end(), id) != s.ids.end(), base::message("an array that still has lane ", id), "one that dropped it");
}

Loaded read(const Reader& reader, const Trainer::State& s) {
  Loaded loaded;
  loaded.epoch = reader.integer("epoch");
  loaded.ids = reader.integers("ids");
  loaded.plan_reason = reader.text("plan_reason");
  for (const auto& lane : reader.list("lanes")) loaded.records.push_back(lane_record(lane));
  check_lanes(reader, s, loaded);
  if (const auto plan = reader.entry("plan"); !plan.isNone()) loaded.plan = plan::from_json(plan.toStringRef(), reader.path());
  const auto lanes = static_cast<std::int64_t>(loaded.ids.size());
  const auto arrays = reader.list("arrays");
  reader.check(arrays.size() == s.arrays.size(), base::message(s.arrays.size(), " arrays"), base::message(arrays.size()));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto dict = arrays[i].toGenericDict();
    Loaded::ArrayTensors entry{tensors(reader, dict.at("parameters"), s.arrays[i]->parameters(), lanes), tensors(reader, dict.at("buffers"), s.arrays[i]->buffers(), lanes), {}};
    for (const auto& generator : dict.at("generators").toListRef()) entry.generators.push_back(generator.toTensor());
    reader.check(entry.generators.size() == loaded.ids.size(), base::message(lanes, " generators"), base::message(entry.generators.size()));
    loaded.arrays.push_back(std::move(entry));
  }
  reader.check(reader.text("optimizer") == s.optimizer.name(), s.optimizer.name() + " as optimizer", reader.text("optimizer"));
  loaded.optimizer = reader.list("optimizer_lanes");
  reader.check(loaded.optimizer.size() == loaded.ids.size(), base::message(lanes, " optimizer states"), base::message(loaded.optimizer.size()));
  loaded.schedules = reader.list("schedules");
  reader.check(loaded.schedules.size() == s.options.schedules.size(), base::message(s.options.schedules.size(), " schedules"), base::message(loaded.schedules.size()));
  return loaded;
}

void put(lanes::ArrayBase& array, const std::vector<at::Tensor>& values, const std::vector<lanes::Stacked>& stacks) {
  for (std::size_t i = 0; i < stacks.size(); ++i) array.write(stacks[i], values[i]);
}

void apply(const Loaded& loaded, Trainer::State& s) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> lanes;
  for (const auto id : loaded.ids) lanes.push_back(std::find(s.ids.begin(), s.ids.end(), id) - s.ids.begin());
  s.keep(lanes);
  for (std::size_t i = 0; i < s.arrays.size(); ++i) {
    put(*s.arrays[i], loaded.arrays[i].parameters, s.arrays[i]->parameters());
    put(*s.arrays[i], loaded.arrays[i].buffers, s.arrays[i]->buffers());
    for (std::int64_t lane = 0; lane < s.lane_count(); ++lane) s.arrays[i]->generator(lane).set_state(loaded.arrays[i].generators[lane]);
    s.arrays[i]->zero_grad();
  }
  for (std::int64_t lane = 0; lane < s.lane_count(); ++lane) s.optimizer.load_lane_state_dict(lane, loaded.optimizer[lane]);
  for (std::size_t i = 0; i < loaded.schedules.size(); ++i)
    if (s.options.schedules[i].load) s.options.schedules[i].load(loaded.schedules[i]);
  s.epoch = loaded.epoch;
  s.records = loaded.records;
  s.stop_requests.clear();
  if (!loaded.plan) return;
  // What the file was trained by is part of going on bit for bit; the caller's own choices stay.
  if (s.options.plan) return s.options.plan->lowerings.insert(loaded.plan->lowerings.begin(), loaded.plan->lowerings.end());
  s.plan = loaded.plan;
  s.plan_reason = loaded.plan_reason;
  s.runner.set_plan(*s.plan);
}

}  // namespace

Scheduled scheduled(optim::Schedule& schedule, bool each_update) {
  Scheduled entry{.step = [&schedule] { schedule.step(); }, .each_update = each_update};
  entry.state = [&schedule] {
    c10::impl::GenericList lanes(c10::AnyType::get());
    for (std::int64_t lane = 0; lane < schedule.optimizer().array().lanes(); ++lane) lanes.push_back(schedule.lane_state_dict(lane));
    return c10::IValue(lanes);
  };
  entry.load = [&schedule](const c10::IValue& state) {
    const auto lanes = state.toListRef();
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) schedule.load_lane_state_dict(static_cast<std::int64_t>(lane), lanes[lane]);
  };
  return entry;
}

void Trainer::save(const std::string& path) const { lanes::save_archive(path, saved(*state_, plan())); }

void Trainer::resume(const std::string& path) {
  const Reader reader(path);
  Loaded loaded;
  try {
    loaded = read(reader, *state_);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    // An entry of another type than ours: LibTorch's own message says nothing about the file.
    reader.check(false, "a checkpoint of this format", "one with damaged entries");
  }
  apply(loaded, *state_);
}

}  // namespace hfta::train
