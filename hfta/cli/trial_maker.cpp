#include "hfta/cli/trial_maker.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>

#include <algorithm>
#include <sstream>

#include "hfta/base/error.h"
#include "hfta/base/options.h"
#include "hfta/base/generator.h"
#include "hfta/cli/hypers.h"
#include "hfta/cli/make_optimizer.h"
#include "hfta/lanes/state.h"

namespace hfta::cli {
namespace {

constexpr std::int64_t kEvaluationBatch = 500;  // No gradients: memory allows more than a training batch.

base::Option option_of(const Value& value) {
  return std::visit(
      [](const auto& held) -> base::Option {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::vector<std::int64_t>>) return std::vector<double>(held.begin(), held.end());
        else return held;
      },
      value);
}

base::Option option_of(const tune::Value& value) {
  return std::visit(
      [](const auto& held) -> base::Option {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) return std::string();
        else return held;
      },
      value);
}

/// The values that reach furthest: all of a choice, both ends of a range.
std::vector<base::Option> extremes(const SpaceEntry& entry) {
  std::vector<base::Option> options;
  for (const auto& value : entry.values) options.push_back(option_of(value));
  if (entry.type == "choice") return options;
  const bool is_whole = entry.type == "int" || entry.type == "int_log";
  for (const double end : {entry.low, entry.high}) {
    if (is_whole) options.emplace_back(static_cast<std::int64_t>(end));
    else options.emplace_back(end);
  }
  return options;
}

double number_of(const tune::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

/// Names, shapes and kinds of all parts: equal for lanes that can be stacked.
std::string structure_of(const torch::nn::Module& module) {
  std::ostringstream text;
  for (const auto& part : module.named_modules("", false)) text << part.key() << ':' << part.value()->name() << ' ';
  for (const auto& parameter : module.named_parameters()) text << parameter.key() << parameter.value().sizes() << ' ';
  for (const auto& buffer : module.named_buffers()) text << buffer.key() << buffer.value().sizes() << ' ';
  return text.str();
}

/// A loader and the source that a trainer reads it through.
class OwnLoader final : public train::BatchSource {
 public:
  OwnLoader(const data::Dataset& dataset, const data::LoaderOptions& options) : loader_(dataset, options), source_(loader_) {}
  void begin_epoch(std::int64_t epoch) override { source_.begin_epoch(epoch); }
  std::optional<train::TrainBatch> next() override { return source_.next(); }
  std::optional<std::int64_t> batches() const override { return source_.batches(); }

 private:
  data::Loader loader_;
  train::LoaderSource source_;
};

std::unique_ptr<train::BatchSource> evaluation_source(const data::Dataset& dataset, const c10::Device& device) {
  return std::make_unique<OwnLoader>(dataset, data::LoaderOptions{.batch_size = std::min(kEvaluationBatch, dataset.size()), .shuffle = false, .device = device});
}

void check_device(const PlanSection& plan) {
  try {
    at::empty({1}, at::TensorOptions(at::kByte).device(c10::Device(plan.device)));
  } catch (const c10::Error&) {
    throw InvalidArgument(base::message(plan.device_place, ": [plan] device: expected a device that is there, got '", plan.device, "'"));
  }
}

/// A model that changes with the precision wants data that does too.
void to_precision(StudyData& data, const std::string& precision) {
  if (precision != "float64") return;
  for (auto* part : {&data.train, &data.validation, &data.test})
    if (part->inputs.defined() && part->inputs.is_floating_point()) part->inputs = part->inputs.to(at::kDouble);
}

}  // namespace

LaneSetup lane_setup(const StudyFile& file, const tune::Trial& trial) {
  LaneSetup setup{.seed = file.study.seed + static_cast<std::uint64_t>(trial.number), .optimizer = file.optimizer.name, .hypers = {}, .batch_size = file.data.batch_size, .model = {}};
  for (const auto& [name, option] : file.model.options) setup.model[name] = option_of(option.value);
  const auto each = [&](const auto& use) {
    for (const auto& entry : file.space)
      if (const auto* parameter = tune::find(trial.parameters, entry.name)) use(entry, parameter->value());
  };
  each([&](const SpaceEntry& entry, const tune::Value& value) {
    if (entry.target == Target::OptimizerName) setup.optimizer = std::get<std::string>(value);
  });
  const auto& known = hyper_names(setup.optimizer);
  const auto is_known = [&](const std::string& name) { return std::find(known.begin(), known.end(), name) != known.end(); };
  for (const auto& [name, value] : file.optimizer.fixed)
    if (is_known(name)) setup.hypers[name] = value;
  if (const auto own = file.optimizer.fixed_of.find(setup.optimizer); own != file.optimizer.fixed_of.end())
    for (const auto& [name, value] : own->second) setup.hypers[name] = value;
  each([&](const SpaceEntry& entry, const tune::Value& value) {
    if (entry.target == Target::Hyper && is_known(entry.key)) setup.hypers[entry.key] = number_of(value);
    if (entry.target == Target::BatchSize) setup.batch_size = std::get<std::int64_t>(value);
    if (entry.target == Target::Seed) setup.seed = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
    if (entry.target == Target::ModelOption) setup.model[entry.key] = option_of(value);
  });
  return setup;
}

TrialMaker::TrialMaker(const StudyFile& file, StudyData data) : file_(file), data_(std::move(data)), model_name_(file.model.name) {
  to_precision(data_, file.plan.precision);
  check_device(file.plan);
  // A fault is told before anything is trained.
  try {
    if (!file.model.plugin.empty()) {
      const auto names = registry_.load_plugin(file.model.plugin);
      HFTA_CHECK(!model_name_.empty() || names.size() == 1, "expected name = one of ", base::list(names), " of the plug-in, got none");
      if (model_name_.empty()) model_name_ = names[0];
    }
    model(first_setup());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(base::message(file.model.place, ": [model] ", error.what()));
  }
  check_space();
}

LaneSetup TrialMaker::first_setup() const {
  auto setup = lane_setup(file_, tune::Trial{});
  for (const auto& entry : file_.space)
    if (entry.target == Target::ModelOption && entry.when.empty()) setup.model[entry.key] = extremes(entry)[0];
  return setup;
}

void TrialMaker::check_space() const {
  for (const auto& entry : file_.space) {
    if (entry.target != Target::ModelOption) continue;
    auto setup = first_setup();
    for (const auto& other : file_.space)
      if (other.name == entry.when && other.target == Target::ModelOption) setup.model[other.key] = option_of(entry.when_values[0]);
    for (const auto& value : extremes(entry)) try {
        setup.model[entry.key] = value;
        model(setup);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(base::message(entry.place, ": [space] ", entry.name, ": ", error.what()));
      }
  }
}

zoo::Model TrialMaker::model(const LaneSetup& setup) const {
  return registry_.make(model_name_, setup.model, {.input = data_.train.input_shape(), .outputs = data_.train.classes});
}

std::string TrialMaker::kind(const tune::Trial& trial) const {
  const auto setup = lane_setup(file_, trial);
  std::ostringstream text;
  text << setup.optimizer << ' ' << setup.batch_size;
  if (const auto nesterov = setup.hypers.find("nesterov"); nesterov != setup.hypers.end()) text << " nesterov " << nesterov->second;
  // The module is only looked at: what it draws must not be missing elsewhere.
  const base::DefaultGeneratorScope scope(base::seeded_generator(0));
  text << ' ' << structure_of(*model(setup).build());
  return text.str();
}

std::vector<std::pair<std::string, std::string>> TrialMaker::kind_parts(const tune::Trial& trial) const {
  const auto setup = lane_setup(file_, trial);
  std::vector<std::pair<std::string, std::string>> parts{{"optimizer", setup.optimizer}, {"batch_size", std::to_string(setup.batch_size)}};
  if (const auto nesterov = setup.hypers.find("nesterov"); nesterov != setup.hypers.end()) parts.emplace_back("nesterov", nesterov->second ? "true" : "false");
  for (const auto& entry : file_.space)
    if (entry.target == Target::ModelOption)
      if (const auto value = setup.model.find(entry.key); value != setup.model.end()) parts.emplace_back(entry.key, base::to_text(value->second));
  return parts;
}

tune::TrialArray TrialMaker::make(const std::vector<tune::Trial>& trials) const {
  std::vector<LaneSetup> setups;
  std::vector<zoo::Model> models;
  std::vector<std::uint64_t> seeds;
  for (const auto& trial : trials) {
    setups.push_back(lane_setup(file_, trial));
    models.push_back(model(setups.back()));
    seeds.push_back(setups.back().seed);
  }
  tune::TrialArray made;
  const bool is_double = file_.plan.precision == "float64";
  made.array = std::make_unique<lanes::ArrayBase>(
      [&](std::int64_t lane) {
        auto module = models[static_cast<std::size_t>(lane)].build();
        if (is_double) module->to(at::kDouble);
        return module;
      },
      seeds);
  const c10::Device device(file_.plan.device);
  if (!device.is_cpu()) made.array->to(device);
  made.optimizer = make_optimizer(*made.array, setups);
  if (const auto schedule = make_schedule(*made.optimizer, file_.schedule, file_.study.epochs)) {
    made.schedules.push_back(train::scheduled(*schedule, /*each_update=*/false));
    made.owned.push_back(schedule);
  }
  auto& array = *made.array;
  // One model's options serve all lanes: `forward` knows the module's type only.
  const auto forward = models[0].forward;
  made.step = [&array, forward](std::int64_t lane, std::span<const at::Tensor> inputs) -> train::StepResult {
    return {at::cross_entropy_loss(forward(*array.module(lane), inputs[0]), inputs[1]), {}};
  };
  made.metrics = {{"accuracy", "validation_loss"}, [&array, forward](std::int64_t lane, std::span<const at::Tensor> inputs) -> std::vector<at::Tensor> {
                    const auto logits = forward(*array.module(lane), inputs[0]);
                    return {logits.argmax(1).eq(inputs[1]).to(logits.scalar_type()).mean(), at::cross_entropy_loss(logits, inputs[1])};
                  }};
  if (file_.optimizer.max_norm) made.step_options.max_norm = optim::PerLane(*file_.optimizer.max_norm);
  const auto batch = std::min(setups[0].batch_size, data_.train.size());
  made.training = std::make_unique<OwnLoader>(data_.train, data::LoaderOptions{.batch_size = batch, .seed = file_.study.seed, .shuffle = file_.data.shuffle, .drop_last = true, .device = device});
  made.validation = evaluation_source(data_.validation, device);
  return made;
}

train::Metrics TrialMaker::test(const tune::Trial& trial, const std::string& weights) const {
  auto made = make({trial});
  lanes::load_lane(*made.array, 0, weights);
  const auto source = evaluation_source(data_.test, made.array->device());
  return train::Trainer({made.array.get()}, *made.optimizer, made.step, {}).evaluate(*source, made.metrics).at(0);
}

std::int64_t TrialMaker::steps_of_epoch(const tune::Trial& trial) const {
  return data_.train.size() / std::min(lane_setup(file_, trial).batch_size, data_.train.size());
}

}  // namespace hfta::cli
