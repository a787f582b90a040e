#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hfta/cli/value.h"

namespace hfta::cli {

/// An option that is passed on to whoever knows it (a model), with its place for their errors.
struct Option {
  Value value;
  std::string place;  ///< `study.toml:7`.
};

struct StudySection {
  std::string name;                        ///< Default: the file's name without `.toml`.
  std::string sampler = "random";          ///< random, grid
  std::string metric = "accuracy";         ///< accuracy, loss: of the validation split.
  bool maximize = true;                    ///< Default: by the metric.
  std::uint64_t seed = 0;
  std::optional<std::int64_t> trials;      ///< In all; default 16, with a grid all its points.
  std::optional<std::int64_t> lanes;       ///< Most trained at once; default: all, as far as memory goes.
  std::int64_t epochs = 10;
  std::optional<std::int64_t> patience;    ///< Stops a trial after so many epochs without a better metric.
  double min_delta = 0;                    ///< What counts as better.
};

struct DataSection {
  std::string kind;                        ///< fashion_mnist, idx, csv, synthetic
  std::string path;                        ///< Folder (fashion_mnist, idx) or file (csv).
  std::string train_images, train_labels, test_images, test_labels;  ///< idx: single files instead of a folder.
  std::string test_path;                   ///< csv: the test file; empty: none.
  std::string target;                      ///< csv: name or number of the label's column; empty: the last.
  bool header = true;                      ///< csv: the first line names the columns.
  char separator = ',';                    ///< csv
  double validation = 0.1;                 ///< Below 1 a share of the training examples, else their number.
  std::optional<std::int64_t> train_limit; ///< At most so many training examples.
  std::int64_t batch_size = 64;
  bool normalize = true;                   ///< By mean and deviation of the training split.
  bool shuffle = true;
  std::int64_t classes = 4;                ///< synthetic
  std::int64_t examples = 512;             ///< synthetic: of each part.
  double spread = 1;                       ///< synthetic: deviation within a class; the centres have 2.
  std::vector<std::int64_t> shape{8};      ///< synthetic: of one example.
};

struct ModelSection {
  std::string name;                        ///< Of the zoo; with a plug-in the name of one of its models (empty: its only one).
  std::string plugin;                      ///< Shared library that registers models; empty: none.
  std::map<std::string, Option> options;
  std::string place;
};

struct OptimizerSection {
  std::string name = "adam";
  std::map<std::string, double> fixed;                              ///< For every optimizer that has it.
  std::map<std::string, std::map<std::string, double>> fixed_of;    ///< `[optimizer.sgd]`: for this one only.
  std::optional<double> max_norm;                                   ///< Clips each lane's gradient norm.
};

struct ScheduleSection {
  std::string name = "constant";           ///< constant, step, cosine
  std::int64_t warmup = 0;                 ///< Epochs of linear warm-up before it.
  std::int64_t every = 1;                  ///< step: epochs between two decays.
  double gamma = 0.1;                      ///< step: factor of a decay.
  double least = 0;                        ///< cosine: learning rate at the end, as a share of the first.
};

/// What a searched parameter sets.
enum class Target { OptimizerName, Hyper, ModelOption, BatchSize, Seed };

struct SpaceEntry {
  std::string name;                        ///< Key in `[space]`, name in the study.
  std::string type;                        ///< uniform, loguniform, int, int_log, quniform, choice
  double low = 0, high = 0, step = 0;      ///< step 0: none.
  std::vector<Value> values;               ///< choice
  Target target = Target::ModelOption;
  std::string key;                         ///< Hyper-parameter or model option that it sets.
  std::string when;                        ///< Searched only where this earlier parameter ...
  std::vector<Value> when_values;          ///< ... took one of these values; empty: always.
  std::string place;
};

struct PlanSection {
  std::string device = "cpu";
  std::string device_place;
  std::string precision = "float32";
  std::optional<std::int64_t> width, workers, threads;  ///< Empty: chosen by timing.
  std::optional<bool> recorded;                         ///< Empty: recorded where it works and is faster.
  std::string lowerings = "timed";                      ///< timed, first
};

struct OutputSection {
  std::string folder;                      ///< Default: `runs/<study's name>`.
  std::string storage;                     ///< Optuna SQLite file; default: `<folder>/study.db`.
  std::int64_t checkpoint_every = 1;       ///< Epochs.
  std::string weights = "all";             ///< Exported at the end: all, best, none
};

/// A study file, read and checked: every key is known, every value has its type and range.
struct StudyFile {
  std::string path;
  std::string text;                        ///< As it was read.
  StudySection study;
  DataSection data;
  ModelSection model;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  std::vector<SpaceEntry> space;           ///< In the order of the file.
  PlanSection plan;
  OutputSection output;
};

/// Reads a study file. @throws InvalidArgument, one line with file and line of the fault.
StudyFile read_study_file(const std::string& path);
/// As above, from text; `path` names it in errors and gives the default name.
StudyFile parse_study_file(const std::string& text, const std::string& path);

}  // namespace hfta::cli
