#include "hfta/cli/study_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "hfta/base/error.h"
#include "hfta/cli/value.h"

namespace hfta::cli {
namespace {

const std::string kShort = R"([data]
kind = "fashion_mnist"
[model]
name = "cnn"
[space]
lr = {type = "loguniform", low = 1e-4, high = 0.1}
)";

const std::string kLong = R"(
[study]
name = "n"
sampler = "grid"
metric = "loss"
seed = 3
trials = 5
lanes = 4
epochs = 2
patience = 1
min_delta = 1e-3
[data]
kind = "synthetic"
classes = 3
examples = 100
shape = [1, 8, 8]
validation = 20
train_limit = 50
normalize = false
shuffle = false
[model]
name = "mlp"
hidden = [16, 16]
[optimizer]
weight_decay = 1
max_norm = 2.0
sgd.momentum = 0.9
[schedule]
name = "cosine"
warmup = 1
least = 0.1
[space]
optimizer = ["sgd", "adam"]
batch_size = [16, 32]
lr = {type = "quniform", low = 0, high = 1, step = 0.25}
depth = {type = "int", low = 1, high = 5, step = 2, sets = "model.layers"}
[plan]
device = "cuda:1"
precision = "float64"
width = 2
workers = "auto"
recorded = false
[output]
folder = "out"
storage = "x.db"
checkpoint_every = 2
weights = "best"
)";

/// The message that reading the text gives, "" when it is read.
std::string refusal(const std::string& text) {
  try {
    parse_study_file(text, "s.toml");
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

/// The short file with one line in place of another.
std::string with(const std::string& from, const std::string& to) {
  auto text = kShort;
  return text.replace(text.find(from), from.size(), to);
}

TEST(StudyFileTest, ShortFileHasDefaults) {
  const auto file = parse_study_file(kShort, "dir/mnist.toml");
  EXPECT_EQ(file.study.name, "mnist");
  EXPECT_TRUE(file.study.maximize);
  EXPECT_FALSE(file.study.trials.has_value());
  EXPECT_EQ(file.data.path, "/usr/share/datasets/fashion-mnist");
  EXPECT_EQ(file.optimizer.name, "adam");
  EXPECT_EQ(file.output.folder, "runs/mnist");
  EXPECT_EQ(file.output.storage, "runs/mnist/study.db");
  ASSERT_EQ(file.space.size(), 1u);
  EXPECT_EQ(file.space[0].target, Target::Hyper);
  EXPECT_EQ(file.space[0].low, 1e-4);
}

TEST(StudyFileTest, EveryKeyIsRead) {
  const auto file = parse_study_file(kLong, "s.toml");
  EXPECT_FALSE(file.study.maximize);
  EXPECT_EQ(file.study.seed, 3u);
  EXPECT_EQ(file.study.trials, 5);
  EXPECT_EQ(file.data.shape, (std::vector<std::int64_t>{1, 8, 8}));
  EXPECT_EQ(file.data.validation, 20);
  EXPECT_EQ(file.model.options.at("hidden").value, Value(std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(file.model.options.at("hidden").place, "s.toml:23");
  EXPECT_EQ(file.optimizer.fixed.at("weight_decay"), 1);
  EXPECT_EQ(file.optimizer.fixed_of.at("sgd").at("momentum"), 0.9);
  EXPECT_EQ(file.schedule.least, 0.1);
  ASSERT_EQ(file.space.size(), 4u);
  EXPECT_EQ(file.space[0].target, Target::OptimizerName);
  EXPECT_EQ(file.space[1].target, Target::BatchSize);
  EXPECT_EQ(file.space[2].step, 0.25);
  EXPECT_EQ(file.space[3].key, "layers");
  EXPECT_EQ(file.space[3].target, Target::ModelOption);
  EXPECT_EQ(file.plan.width, 2);
  EXPECT_FALSE(file.plan.workers.has_value());
  EXPECT_EQ(file.plan.recorded, false);
  EXPECT_EQ(file.output.storage, "x.db");
}

struct Refused {
  std::string text, message;
};
class StudyFileRefusalTest : public ::testing::TestWithParam<Refused> {};
TEST_P(StudyFileRefusalTest, NamesPlaceAndWhatWasExpected) { EXPECT_EQ(refusal(GetParam().text), GetParam().message); }

INSTANTIATE_TEST_SUITE_P(
    All, StudyFileRefusalTest,
    ::testing::Values(
        Refused{with("[model]", "[modl]"),
                "s.toml:3: the file has no key 'modl' (did you mean 'model'?); known keys: data, model, optimizer, output, plan, schedule, space, study"},
        Refused{with("[data]", "[study]\ntrails = 3\n[data]"),
                "s.toml:2: [study] has no key 'trails' (did you mean 'trials'?); known keys: direction, epochs, lanes, metric, min_delta, name, patience, sampler, seed, trials"},
        Refused{with("[data]", "[study]\nlanes = 0\n[data]"), "s.toml:2: [study] lanes: expected a whole number of at least 1, got 0"},
        Refused{with("[data]", "[study]\ntrials = \"ten\"\n[data]"), "s.toml:2: [study] trials: expected a whole number of at least 1, got 'ten'"},
        Refused{with("[data]", "[study]\nepochs = 2.5\n[data]"), "s.toml:2: [study] epochs: expected a whole number of at least 1, got 2.5"},
        Refused{with("[data]", "[study]\nmetric = \"acuracy\"\n[data]"),
                "s.toml:2: [study] metric: expected one of accuracy, loss, got 'acuracy' (did you mean 'accuracy'?)"},
        Refused{with("kind = \"fashion_mnist\"", ""), "s.toml:1: [data] kind: expected one of fashion_mnist, idx, csv, synthetic, got none"},
        Refused{with("kind = \"fashion_mnist\"", "kind = \"idx\""), "s.toml:1: [data] path: expected the folder of the IDX files, or the files as train_images and train_labels, got neither"},
        Refused{with("\"fashion_mnist\"", "\"fashion_mnist\"\ntarget = \"y\""),
                "s.toml:3: [data] has no key 'target'; known keys: batch_size, kind, normalize, path, shuffle, train_limit, validation"},
        Refused{with("\"fashion_mnist\"", "\"fashion_mnist\"\nvalidation = 1.5"),
                "s.toml:3: [data] validation: expected a share between 0 and 1 or a number of examples, got 1.5"},
        Refused{with("\"fashion_mnist\"", "\"fashion_mnist\"\nnormalize = 1"), "s.toml:3: [data] normalize: expected true or false, got 1"},
        Refused{with("name = \"cnn\"", ""), "s.toml:3: [model] expected name = \"<model of the zoo>\" or plugin = \"<library>\", got neither"},
        Refused{with("name = \"cnn\"", "name = \"cnn\"\ndropout = nan"), "s.toml:5: [model] dropout: expected a finite number, got nan"},
        Refused{with("low = 1e-4", "low = nan"), "s.toml:6: [space.lr] low: expected a finite number, got nan"},
        Refused{with("low = 1e-4", "low = 0"), "s.toml:6: [space.lr] low: expected more than 0 for loguniform, got 0"},
        Refused{with("low = 1e-4", "low = 1"), "s.toml:6: [space.lr] high: expected at least low = 1, got 0.1"},
        Refused{with("low = 1e-4, ", ""), "s.toml:6: [space.lr] low: expected a bound of loguniform, got none"},
        Refused{with("low = 1e-4", "lo = 1e-4, low = 1e-4"), "s.toml:6: [space.lr] has no key 'lo' (did you mean 'low'?); known keys: high, low, sets, type, when"},
        Refused{with("lr = {type = \"loguniform\", low = 1e-4, high = 0.1}", ""),
                "s.toml:5: [space] expected at least one parameter to search, such as lr = {type = \"loguniform\", low = 1e-4, high = 0.1}, got none"},
        Refused{with("lr = {type = \"loguniform\", low = 1e-4, high = 0.1}", "lr = []"),
                "s.toml:6: [space] lr: expected a list of at least one value, got none"},
        Refused{with("lr = {type = \"loguniform\", low = 1e-4, high = 0.1}", "lr = [1, 2, 1]"),
                "s.toml:6: [space] lr: expected different values, got 1 twice"},
        Refused{with("lr = {type = \"loguniform\", low = 1e-4, high = 0.1}", "lr = 0.1"),
                "s.toml:6: [space] lr: expected a list of values, or a table such as {type = \"uniform\", low = 0, high = 1}, got a single value; "
                "fixed values belong in [optimizer], [model] or [data]"},
        Refused{kShort + "optimizer = [\"adam\", \"sdg\"]\n",
                "s.toml:7: [space] optimizer: expected optimizers among adadelta, adam, adamw, sgd, got 'sdg' (did you mean 'sgd'?)"},
        Refused{kShort + "momentum = [0.0, 0.9]\n", "s.toml:7: [space] momentum: expected a hyper-parameter of adam, got 'momentum'"},
        Refused{kShort + "batch_size = {type = \"uniform\", low = 8, high = 64}\n",
                "s.toml:7: [space.batch_size] expected a type and bounds that batch_size takes, got uniform from 8"},
        Refused{kShort + "[optimizer]\nlr = 0.1\n", "s.toml:8: [optimizer] lr: expected none since [space] searches it, got 0.1"},
        Refused{kShort + "momentum = {type = \"uniform\", low = 0, high = 2}\n",
                "s.toml:7: [space.momentum] expected bounds in [0, 1] for momentum, got uniform from 0 to 2"},
        Refused{kShort + "lr2 = {type = \"uniform\", low = 0, high = 2, sets = \"lr\"}\n", "s.toml:7: [space] expected one parameter that sets lr, got lr and lr2"},
        Refused{kShort + "dropout = {type = \"uniform\", low = 0, high = 1, when = {}}\n",
                "s.toml:7: [space.dropout.when] expected one earlier parameter and its values, got 0"},
        Refused{kShort + "[schedule]\nname = \"cosine\"\nwarmup = 10\n", "s.toml:9: [schedule] warmup: expected fewer than the 10 epochs, got 10"},
        Refused{kShort + "dropout = [0.0, 0.5]\n[model.x]\n", "s.toml:8: [model] x: expected a number, text, true, false or a list, got a table"},
        Refused{kShort + "[plan]\ndevice = \"gpu\"\n", "s.toml:8: [plan] device: expected cpu, cuda or cuda:<number>, got 'gpu'"},
        Refused{kShort + "[plan]\nwidth = 0\n", "s.toml:8: [plan] width: expected a whole number of at least 1 or \"auto\", got 0"},
        Refused{kShort + "[output]\nfolder = \"\"\n", "s.toml:8: [output] folder: expected text in quotes, got ''"}));

TEST(StudyFileTest, ConditionsAreRead) {
  const auto file = parse_study_file(R"(
[data]
kind = "synthetic"
[model]
name = "mlp"
[space]
optimizer = ["adam", "sgd"]
lr_adam = {type = "loguniform", low = 1e-4, high = 1e-2, sets = "lr", when = {optimizer = "adam"}}
lr_sgd = {type = "loguniform", low = 1e-3, high = 1e-1, sets = "lr", when = {optimizer = ["sgd"]}}
)", "s.toml");
  ASSERT_EQ(file.space.size(), 3u);
  EXPECT_EQ(file.space[1].key, "lr");
  EXPECT_EQ(file.space[2].when, "optimizer");
  EXPECT_EQ(file.space[2].when_values, std::vector<Value>{std::string("sgd")});
}

TEST(StudyFileTest, MalformedTomlNamesItsLine) {
  EXPECT_THAT(refusal("[data]\nkind = \n"), ::testing::StartsWith("s.toml:2: no TOML: "));
  EXPECT_THAT(refusal("[data]\nkind = \n"), ::testing::Not(::testing::HasSubstr("\n")));
}

TEST(StudyFileTest, UnreadableFileIsRefused) {
  try {
    read_study_file("/nowhere/s.toml");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "/nowhere/s.toml: expected a study file that can be read");
  }
  EXPECT_THROW(read_study_file(std::filesystem::temp_directory_path().string()), InvalidArgument);
}

}  // namespace
}  // namespace hfta::cli
