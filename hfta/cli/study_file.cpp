#include "hfta/cli/study_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "hfta/base/error.h"
#include "hfta/cli/hypers.h"
#include "hfta/cli/space_section.h"
#include "hfta/cli/toml_table.h"

namespace hfta::cli {
namespace {


/// A value that is searched is not fixed too.
void refuse_searched(TomlTable table, const std::vector<SpaceEntry>& space, Target target) {
  for (const auto& entry : space)
    if (entry.target == target && table.has(entry.key))
      table.fail(entry.key, "expected none since [space] searches it, got " + written(table.value(entry.key)));
}

StudySection read_study(TomlTable table, const std::string& path) {
  StudySection study;
  study.name = table.text("name").value_or(std::filesystem::path(path).stem().string());
  study.sampler = table.one_of("sampler", {"random", "grid"}).value_or(study.sampler);
  study.metric = table.one_of("metric", {"accuracy", "loss"}).value_or(study.metric);
  study.maximize = table.one_of("direction", {"minimize", "maximize"}).value_or(study.metric == "accuracy" ? "maximize" : "minimize") == "maximize";
  study.seed = static_cast<std::uint64_t>(table.integer("seed", 0).value_or(0));
  study.trials = table.integer("trials", 1);
  study.lanes = table.integer("lanes", 1);
  study.epochs = table.integer("epochs", 1).value_or(study.epochs);
  study.patience = table.integer("patience", 1);
  study.min_delta = table.number("min_delta", 0).value_or(study.min_delta);
  table.finish();
  return study;
}

/// Keys that belong to one kind of data are known for this kind only.
void read_data_kind(TomlTable& table, DataSection& data) {
  if (data.kind == "fashion_mnist") {
    data.path = table.text("path").value_or("/usr/share/datasets/fashion-mnist");
  } else if (data.kind == "idx") {
    data.path = table.text("path").value_or("");
    for (const auto& [key, file] : {std::pair{"train_images", &data.train_images}, {"train_labels", &data.train_labels}, {"test_images", &data.test_images}, {"test_labels", &data.test_labels}})
      *file = table.text(key).value_or("");
    if (data.path.empty() && (data.train_images.empty() || data.train_labels.empty()))
      table.fail("path", "expected the folder of the IDX files, or the files as train_images and train_labels, got neither");
    if (data.test_images.empty() != data.test_labels.empty()) table.fail("test_images", "expected both test_images and test_labels, got one");
  } else if (data.kind == "csv") {
    const auto path = table.text("path");
    if (!path) table.fail("path", "expected the CSV file, got none");
    data.path = *path;
    data.test_path = table.text("test_path").value_or("");
    data.target = table.text("target").value_or("");
    data.header = table.flag("header").value_or(data.header);
    const auto separator = table.text("separator").value_or(",");
    if (separator.size() != 1) table.fail("separator", "expected one character, got '" + separator + "'");
    data.separator = separator[0];
  }
  if (data.kind != "synthetic") return;
  data.classes = table.integer("classes", 2).value_or(data.classes);
  data.examples = table.integer("examples", 1).value_or(data.examples);
  data.spread = table.number("spread", 0).value_or(data.spread);
  if (!table.has("shape")) return;
  const auto shape = table.value("shape");
  const auto* sizes = std::get_if<std::vector<std::int64_t>>(&shape);
  if (!sizes || sizes->empty() || std::any_of(sizes->begin(), sizes->end(), [](auto size) { return size < 1; }))
    table.fail("shape", "expected a list of sizes of at least 1, got " + written(shape));
  data.shape = *sizes;
}

DataSection read_data(TomlTable table) {
  DataSection data;
  const auto kind = table.one_of("kind", {"fashion_mnist", "idx", "csv", "synthetic"});
  if (!kind) table.fail("kind", "expected one of fashion_mnist, idx, csv, synthetic, got none");
  data.kind = *kind;
  read_data_kind(table, data);
  data.validation = table.number("validation", 0).value_or(data.validation);
  const bool is_share = data.validation > 0 && data.validation < 1;
  if (!is_share && (data.validation < 1 || data.validation != std::floor(data.validation)))
    table.fail("validation", "expected a share between 0 and 1 or a number of examples, got " + written(data.validation));
  data.train_limit = table.integer("train_limit", 1);
  data.batch_size = table.integer("batch_size", 1).value_or(data.batch_size);
  data.normalize = table.flag("normalize").value_or(data.normalize);
  data.shuffle = table.flag("shuffle").value_or(data.shuffle);
  table.finish();
  return data;
}

ModelSection read_model(TomlTable table) {
  ModelSection model;
  model.place = table.place();
  model.name = table.text("name").value_or("");
  model.plugin = table.text("plugin").value_or("");
  if (model.name.empty() && model.plugin.empty())
    table.fail("", "expected name = \"<model of the zoo>\" or plugin = \"<library>\", got neither");
  for (const auto& key : table.other_keys()) model.options.emplace(key, Option{table.value(key), table.place(key)});
  return model;
}

std::map<std::string, double> read_hypers(TomlTable& table, const std::vector<std::string>& names) {
  std::map<std::string, double> fixed;
  for (const auto& name : names) {
    const auto range = hyper_range(name);
    if (range.is_flag) {
      if (const auto on = table.flag(name)) fixed[name] = *on;
    } else if (const auto number = table.number(name, range.least, range.most)) {
      fixed[name] = *number;
    }
  }
  return fixed;
}

OptimizerSection read_optimizer(TomlTable table, const std::vector<std::string>& searched) {
  OptimizerSection optimizer;
  if (const auto name = table.one_of("name", optimizer_names())) {
    optimizer.name = *name;
    if (!searched.empty()) table.fail("name", "expected none since [space] searches the optimizer, got '" + *name + "'");
  }
  optimizer.max_norm = table.number("max_norm", 0);
  std::vector<std::string> shared;
  const auto used = searched.empty() ? std::vector<std::string>{optimizer.name} : searched;
  for (const auto& name : used) {
    auto own = table.table(name);
    optimizer.fixed_of[name] = read_hypers(own, hyper_names(name));
    own.finish();
    for (const auto& hyper : hyper_names(name))
      if (std::find(shared.begin(), shared.end(), hyper) == shared.end()) shared.push_back(hyper);
  }
  optimizer.fixed = read_hypers(table, shared);
  table.finish();
  return optimizer;
}

ScheduleSection read_schedule(TomlTable table, std::int64_t epochs) {
  ScheduleSection schedule;
  schedule.name = table.one_of("name", {"constant", "step", "cosine"}).value_or(schedule.name);
  schedule.warmup = table.integer("warmup", 0).value_or(schedule.warmup);
  if (schedule.warmup >= epochs) table.fail("warmup", base::message("expected fewer than the ", epochs, " epochs, got ", schedule.warmup));
  if (schedule.name == "step") {
    schedule.every = table.integer("every", 1).value_or(schedule.every);
    schedule.gamma = table.number("gamma", 0).value_or(schedule.gamma);
  } else if (schedule.name == "cosine") {
    schedule.least = table.number("least", 0, 1).value_or(schedule.least);
  }
  table.finish();
  return schedule;
}

/// A whole number, or the word "auto" (as when the key is absent).
std::optional<std::int64_t> whole_or_auto(TomlTable& table, const std::string& key) {
  if (!table.has(key)) return std::nullopt;
  const auto value = table.value(key);
  if (const auto* word = std::get_if<std::string>(&value); word && *word == "auto") return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(&value); whole && *whole >= 1) return *whole;
  table.fail(key, "expected a whole number of at least 1 or \"auto\", got " + written(value));
}

PlanSection read_plan(TomlTable table) {
  PlanSection plan;
  plan.device = table.text("device").value_or(plan.device);
  plan.device_place = table.place("device");
  const auto is_number = [](const std::string& text) { return !text.empty() && text.size() < 4 && text.find_first_not_of("0123456789") == std::string::npos; };
  if (plan.device != "cpu" && plan.device != "cuda" && !(plan.device.starts_with("cuda:") && is_number(plan.device.substr(5))))
    table.fail("device", "expected cpu, cuda or cuda:<number>, got '" + plan.device + "'");
  plan.precision = table.one_of("precision", {"float32", "float64"}).value_or(plan.precision);
  plan.width = whole_or_auto(table, "width");
  plan.workers = whole_or_auto(table, "workers");
  plan.threads = whole_or_auto(table, "threads");
  if (table.has("recorded")) {
    const auto value = table.value("recorded");
    if (const auto* on = std::get_if<bool>(&value)) plan.recorded = *on;
    else if (value != Value(std::string("auto"))) table.fail("recorded", "expected true, false or \"auto\", got " + written(value));
  }
  plan.lowerings = table.one_of("lowerings", {"timed", "first"}).value_or(plan.lowerings);
  table.finish();
  return plan;
}

OutputSection read_output(TomlTable table, const std::string& name) {
  OutputSection output;
  output.folder = table.text("folder").value_or("runs/" + name);
  output.storage = table.text("storage").value_or((std::filesystem::path(output.folder) / "study.db").string());
  output.checkpoint_every = table.integer("checkpoint_every", 1).value_or(output.checkpoint_every);
  output.weights = table.one_of("weights", {"all", "best", "none"}).value_or(output.weights);
  table.finish();
  return output;
}

/// The optimizers that a searched optimizer may be.
std::vector<std::string> searched_optimizers(const std::vector<SpaceEntry>& space) {
  std::vector<std::string> names;
  for (const auto& entry : space)
    if (entry.target == Target::OptimizerName)
      for (const auto& value : entry.values) names.push_back(std::get<std::string>(value));
  return names;
}

}  // namespace

StudyFile parse_study_file(const std::string& text, const std::string& path) {
  auto root = TomlTable::parse(text, path);
  StudyFile file;
  file.path = path;
  file.text = text;
  // Sections that are misspelt are told before anything is missed in them.
  for (const char* section : {"study", "data", "model", "optimizer", "schedule", "space", "plan", "output"}) root.has(section);
  root.finish();
  file.study = read_study(root.table("study"), path);
  file.data = read_data(root.table("data"));
  file.model = read_model(root.table("model"));
  file.space = read_space(root.table("space"));
  file.optimizer = read_optimizer(root.table("optimizer"), searched_optimizers(file.space));
  file.schedule = read_schedule(root.table("schedule"), file.study.epochs);
  file.plan = read_plan(root.table("plan"));
  file.output = read_output(root.table("output"), file.study.name);
  check_hypers(file.space, file.optimizer);
  refuse_searched(root.table("optimizer"), file.space, Target::Hyper);
  refuse_searched(root.table("model"), file.space, Target::ModelOption);
  refuse_searched(root.table("data"), file.space, Target::BatchSize);
  return file;
}

StudyFile read_study_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens, and fails at the first read only.
  HFTA_CHECK(stream && (stream.peek() == std::ifstream::traits_type::eof() || text << stream.rdbuf()) && !stream.bad(), path, ": expected a study file that can be read");
  return parse_study_file(text.str(), path);
}

}  // namespace hfta::cli
