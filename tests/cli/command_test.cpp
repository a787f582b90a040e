#include <gmock/gmock.h>

#include "hfta/lanes/archive.h"
#include "hfta/tune/study.h"
#include "tests/cli/command_support.h"

namespace hfta::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(UsageTest, EveryCommandHasHelpWithExamples) {
  for (const std::string command : {"sweep", "resume", "status", "best", "trials", "export", "plan"}) {
    const auto outcome = hfta({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("Examples:\n  hfta " + command), HasSubstr("--format"), HasSubstr("130 interrupted"))) << command;
  }
  EXPECT_THAT(hfta({"--help"}).out, HasSubstr("sweep"));
  EXPECT_THAT(hfta({"--version"}).out, StartsWith("hfta "));
}

TEST(UsageTest, BadUseIsOneLineAndCodeTwo) {
  const auto line = [](std::vector<std::string> arguments) {
    const auto outcome = hfta(std::move(arguments));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(line({"swep", "x.toml"}), "hfta: no command 'swep' (did you mean 'sweep'?); commands: sweep, resume, status, best, trials, export, plan\n");
  EXPECT_EQ(line({"sweep"}), "hfta: FILE is required; see 'hfta sweep --help'\n");
  EXPECT_EQ(line({"sweep", "/nowhere.toml"}), "hfta: /nowhere.toml: expected a study file that can be read\n");
  EXPECT_EQ(line({"best", "/nowhere"}), "hfta: /nowhere: expected a study file, a run folder or a SQLite file, got nothing there\n");
  EXPECT_THAT(line({"sweep", "x.toml", "--trials", "0"}), StartsWith("hfta: --trials: "));
  EXPECT_THAT(line({"sweep", "x.toml", "--trials", "2", "--more", "3"}), StartsWith("hfta: "));
  EXPECT_THAT(line({"best", "x.toml", "-f", "xml"}), StartsWith("hfta: --format: "));
}

using SweepTest = CommandTest;

TEST_F(SweepTest, TrainsAndTellsTheBest) {
  const auto file = study_file("s");
  const auto outcome = hfta({"sweep", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("4 trials: 4 complete"), HasSubstr("best: trial "), HasSubstr("test accuracy"), HasSubstr("  lr "), HasSubstr("/lanes/trial-"),
                                 HasSubstr("times as fast as one model after the other"), HasSubstr("plan: 4 lanes: "), HasSubstr("run folder: " + (folder / "s").string())));
  for (const char* made : {"study.db", "study.toml", "plan.json", "log.txt", "lanes/trial-0.pt", "lanes/trial-3.pt"}) EXPECT_TRUE(fs::exists(folder / "s" / made)) << made;
  EXPECT_TRUE(fs::is_empty(folder / "s" / "checkpoints"));
}

TEST_F(SweepTest, JsonIsOneDocument) {
  const auto file = study_file("s");
  const auto outcome = hfta({"sweep", file, "-f", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = Json::parse(outcome.out);
  EXPECT_EQ(json["status"], "finished");
  EXPECT_EQ(json["trials"]["complete"], 4);
  EXPECT_TRUE(json["best"]["parameters"].contains("lr"));
  EXPECT_GT(json["best"]["test"]["accuracy"].get<double>(), 0.2);
  EXPECT_GT(json["speedup"].get<double>(), 0);
  EXPECT_EQ(json["plans"][0]["plan"]["width"], 2);
  EXPECT_TRUE(fs::exists(json["best"]["weights"].get<std::string>()));
  const auto status = Json::parse(hfta({"status", file, "-f", "json"}).out);
  EXPECT_EQ(status["trials"]["complete"], 4);
  const auto again = Json::parse(hfta({"sweep", file, "-f", "json"}).out);
  EXPECT_TRUE(again["model_steps_per_second"].is_null()) << "nothing was trained, so there is no speed";
  const auto best = Json::parse(hfta({"best", file, "-f", "json"}).out);
  EXPECT_EQ(best["number"], json["best"]["number"]);
  EXPECT_EQ(trials_of(file).size(), 4u);
  EXPECT_EQ(trials_of(file)[0]["epochs"].size(), 2u);
}

TEST_F(SweepTest, QueriesTakeFileFolderAndStorage) {
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  for (const auto& study : {file, (folder / "s").string(), (folder / "s" / "study.db").string()}) {
    EXPECT_THAT(hfta({"status", study}).out, StartsWith("study s: 4 trials (4 complete)\nbest: trial ")) << study;
    EXPECT_THAT(hfta({"best", study}).out, HasSubstr("trial-")) << study;
    EXPECT_THAT(hfta({"trials", study, "--sort", "--limit", "2"}).out, StartsWith("trial  state     epochs  ")) << study;
  }
  // A run folder that was moved is still whole.
  fs::rename(folder / "s", folder / "moved");
  EXPECT_THAT(hfta({"best", (folder / "moved").string()}).out, HasSubstr((folder / "moved" / "lanes").string()));
}

TEST_F(SweepTest, SameCommandAgainBeginsNoTrialAndMoreDoes) {  // case T9
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto before = trials_of(file);
  EXPECT_THAT(hfta({"sweep", file}).out, StartsWith("the study has 4 trials, 4 wanted in total: 0 new"));
  EXPECT_EQ(trials_of(file), before);
  EXPECT_THAT(hfta({"sweep", file, "--more", "2"}).out, StartsWith("the study has 4 trials, 2 more wanted: 2 new"));
  EXPECT_THAT(hfta({"sweep", file, "--trials", "7"}).out, StartsWith("the study has 6 trials, 7 wanted in total: 1 new"));
  const auto after = trials_of(file);
  ASSERT_EQ(after.size(), 7u);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i]);
}

TEST_F(SweepTest, ChangedSpaceIsRefusedUnlessAsked) {  // case T12
  ASSERT_EQ(hfta({"sweep", study_file("s", "trials = 2\nepochs = 1", "lr = {type = \"uniform\", low = 0, high = 10}")}).code, 0);
  const auto file = study_file("s", "trials = 4\nepochs = 1", "lr = {type = \"loguniform\", low = 1e-5, high = 0.1}");
  const auto refused = hfta({"sweep", file});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "hfta: the space differs from the study's: expected \"lr\" to be uniform(0, 10) as in the study, got loguniform(1e-05, 0.1); --new-space goes on with it\n");
  EXPECT_EQ(trials_of(file).size(), 2u);
  ASSERT_EQ(hfta({"sweep", file, "--new-space"}).code, 0);
  const auto trials = trials_of(file);
  ASSERT_EQ(trials.size(), 4u);
  for (std::size_t i = 2; i < 4; ++i) EXPECT_LE(trials[i]["parameters"]["lr"].get<double>(), 0.1);
}

TEST_F(SweepTest, FiniteSpaceGivesEachPointOnce) {  // case T10
  const auto file = study_file("s", "trials = 2\nepochs = 1", "optimizer = [\"adam\", \"sgd\"]");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto trials = trials_of(file);
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_NE(trials[0]["parameters"]["optimizer"], trials[1]["parameters"]["optimizer"]);
  // Two classes of optimizers are two arrays.
  EXPECT_EQ(Json::parse(hfta({"sweep", file, "-f", "json"}).out)["plans"].size(), 2u);
}

TEST_F(SweepTest, GridTrainsEveryPoint) {
  const auto file = study_file("s", "sampler = \"grid\"\nepochs = 1", "lr = [0.01, 0.1]\ndropout = [0.1, 0.2, 0.3]");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  EXPECT_EQ(trials_of(file).size(), 6u);
}

TEST_F(SweepTest, BatchSizeAndArchitectureSplitIntoArrays) {
  const auto file = study_file("s", "sampler = \"grid\"\nepochs = 1", "batch_size = [10, 20]\nactivation = [\"relu\", \"tanh\"]\nlr = [0.01, 0.1]");
  auto text = bytes(file);
  std::ofstream(file) << text.replace(text.find("batch_size = 20\n"), 16, "");
  const auto outcome = hfta({"sweep", file, "-f", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = Json::parse(outcome.out);
  EXPECT_EQ(json["trials"]["complete"], 8);
  EXPECT_EQ(json["plans"].size(), 4u);
}

TEST_F(SweepTest, LaneThatDivergesFailsAndTheOthersGoOn) {
  const auto file = study_file("s", "sampler = \"grid\"\nepochs = 2", "optimizer = [\"sgd\"]\nlr = [0.01, 1e38, 0.1]");
  const auto outcome = hfta({"sweep", file});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("3 trials: 2 complete, 1 failed"));
  const auto trials = trials_of(file);
  EXPECT_EQ(trials[1]["state"], "failed");
  EXPECT_THAT(trials[1]["reason"].get<std::string>(), HasSubstr("NaN"));
  EXPECT_EQ(trials[0]["state"], "complete");
}

TEST_F(SweepTest, PatienceStopsATrialEarly) {
  const auto file = study_file("s", "trials = 3\nepochs = 8\npatience = 1\nmetric = \"loss\"\nmin_delta = 100");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  for (const auto& trial : trials_of(file)) {
    EXPECT_EQ(trial["state"], "complete");
    EXPECT_LT(trial["epochs"].size(), 8u);
    EXPECT_THAT(trial["reason"].get<std::string>(), HasSubstr("no better"));
  }
}

TEST_F(SweepTest, SameFileAndSeedGiveTheSameBits) {
  const auto a = study_file("a", "name = \"n\"\ntrials = 3\nepochs = 2"), b = study_file("b", "name = \"n\"\ntrials = 3\nepochs = 2");
  ASSERT_EQ(hfta({"sweep", a}).code, 0);
  ASSERT_EQ(hfta({"sweep", b}).code, 0);
  EXPECT_EQ(trials_of(a), trials_of(b));
  for (const char* weights : {"trial-0.pt", "trial-2.pt"}) EXPECT_EQ(bytes(folder / "a" / "lanes" / weights), bytes(folder / "b" / "lanes" / weights));
}

TEST_F(SweepTest, DryRunTellsPlanMemoryAndWhatIsApartAndWritesNothing) {
  const auto file = study_file("s", "trials = 4\nepochs = 1", "optimizer = [\"adam\", \"sgd\"]\nlr = {type = \"loguniform\", low = 1e-3, high = 0.1}");
  const auto text = hfta({"sweep", file, "--dry-run"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(StartsWith("the study has 0 trials, 4 wanted in total: 4 new; nothing is trained"), HasSubstr(" with optimizer "), HasSubstr("  plan: "), HasSubstr("  memory: "),
                              HasSubstr("not fused with each other")));
  const auto json = Json::parse(hfta({"sweep", file, "--dry-run", "-f", "json"}).out);
  EXPECT_EQ(json["arrays"].size(), 2u);
  EXPECT_GT(json["arrays"][0]["peak_bytes"].get<std::int64_t>(), 0);
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST_F(SweepTest, PlanPrintsTheRecordedStepWhenAsked) {
  const auto file = study_file("s");
  EXPECT_THAT(hfta({"plan", file}).out, ::testing::Not(HasSubstr("recorded step:")));
  const auto text = hfta({"plan", file, "--program"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("  recorded step:\n"), HasSubstr("aten::addmm"), HasSubstr("hfta::cross_entropy_rows")));
  EXPECT_THAT(Json::parse(hfta({"plan", file, "--program", "-f", "json"}).out)["arrays"][0]["program"].get<std::string>(), HasSubstr("aten::addmm"));
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST_F(SweepTest, PlugInModelIsTrainedLikeOneOfTheZoo) {
  const auto file = study_file("s", "trials = 2\nepochs = 1");
  auto text = bytes(file);
  const std::string zoo = "name = \"mlp\"\nhidden = [8]";
  std::ofstream(file) << text.replace(text.find(zoo), zoo.size(), "plugin = \"" HFTA_RESIDUAL_NET "\"\nwidth = 8");
  const auto outcome = hfta({"sweep", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 trials: 2 complete"));
  EXPECT_TRUE(lanes::load_archive((folder / "s" / "lanes" / "trial-0.pt").string()).toGenericDict().contains("first.weight"));
}

TEST_F(SweepTest, WeightsOfTheBestAloneAreKeptWhenAsked) {
  const auto file = study_file("s", "trials = 3\nepochs = 1", "lr = {type = \"loguniform\", low = 1e-3, high = 0.1}", "weights = \"best\"\n");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto best = Json::parse(hfta({"best", file, "-f", "json"}).out);
  EXPECT_TRUE(fs::exists(best["weights"].get<std::string>()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "s" / "lanes"), {}), 1);
}

using QueryTest = CommandTest;

TEST_F(QueryTest, BestOfAStudyWithoutCompletedTrialsSaysSo) {  // case T13
  const auto file = study_file("s");
  fs::create_directories(folder / "s");
  const auto storage = (folder / "s" / "study.db").string();
  { tune::Study::create(storage, {.name = "s", .directions = {tune::Direction::Maximize}}); }
  const auto outcome = hfta({"best", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "hfta: no completed trials in " + storage + "\n");
  EXPECT_EQ(hfta({"export", file}).err, outcome.err);
  EXPECT_THAT(hfta({"status", file}).out, StartsWith("study s: 0 trials\nbest: none is complete yet\n"));
  EXPECT_EQ(hfta({"trials", file, "-f", "json"}).out, "[]\n");
}

TEST_F(QueryTest, BestOfAStudyThatOnlyGaveNanSaysSo) {  // case T13
  const auto file = study_file("s", "sampler = \"grid\"\nepochs = 1", "optimizer = [\"sgd\"]\nlr = [1e38, 2e38]");
  EXPECT_EQ(hfta({"sweep", file}).code, 0);
  const auto outcome = hfta({"best", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "hfta: no completed trials in " + (folder / "s" / "study.db").string() + "\n");
}

TEST_F(QueryTest, StudyThatWasNotBegunIsRefused) {
  const auto file = study_file("s");
  const auto storage = (folder / "s" / "study.db").string();
  EXPECT_EQ(hfta({"status", file}).err, "hfta: " + storage + ": expected a study that was begun, got no such file; 'hfta sweep' begins it\n");
  const auto resumed = hfta({"resume", file});
  EXPECT_EQ(resumed.code, 2);
  EXPECT_EQ(resumed.err, "hfta: " + storage + ": expected a study to go on with, got none; 'hfta sweep' begins one\n");
}

using ExportTest = CommandTest;

TEST_F(ExportTest, WritesAPlainStateDict) {
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  const auto target = (folder / "model.pt").string();
  const auto outcome = hfta({"export", file, "2", "-o", target});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("trial 2 (accuracy "), HasSubstr("written to " + target)));
  const auto state = lanes::load_archive(target).toGenericDict();
  EXPECT_TRUE(state.contains("layers.0.weight"));
  EXPECT_EQ(state.at("layers.0.weight").toTensor().sizes(), (std::vector<std::int64_t>{8, 8}));
  EXPECT_EQ(Json::parse(hfta({"export", file, "-o", target, "-f", "json"}).out)["path"], target);
}

TEST_F(ExportTest, UnknownTrialAndUnwritableTargetAreOneLine) {
  const auto file = study_file("s");
  ASSERT_EQ(hfta({"sweep", file}).code, 0);
  EXPECT_EQ(hfta({"export", file, "99"}).code, 2);
  const auto outcome = hfta({"export", file, "0", "-o", "/dev/null/x.pt"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "hfta: cannot write /dev/null/x.pt: Not a directory\n");
}

using FaultTest = CommandTest;

TEST_F(FaultTest, UnknownModelAndOptionNameTheirPlace) {
  const auto file = study_file("s");
  auto text = bytes(file);
  std::ofstream(file) << text.replace(text.find("\"mlp\""), 5, "\"mpl\"");
  auto outcome = hfta({"sweep", file});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(StartsWith("hfta: " + file + ":9: [model] "), HasSubstr("mlp")));
  text = bytes(study_file("s"));
  std::ofstream(file) << text.replace(text.find("hidden"), 6, "hiden");
  outcome = hfta({"sweep", file});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("hidden"));
}

TEST_F(FaultTest, ValueThatTheModelRefusesIsToldBeforeAnythingIsTrained) {
  const auto line = [&](const std::string& space) {
    const auto file = study_file("s", "trials = 4", space);
    const auto outcome = hfta({"sweep", file});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(fs::exists(folder / "s"));
    return outcome.err.starts_with("hfta: " + file) ? outcome.err.substr(6 + file.size()) : outcome.err;
  };
  EXPECT_EQ(line("dropout = {type = \"uniform\", low = 0.0, high = 1.5}"), ":12: [space] dropout: zoo::mlp: expected a finite number in [0, 1] as \"dropout\", got 1.5\n");
  EXPECT_EQ(line("lr = [0.1]\ndropout = [0.1, 0.2, -1]"), ":13: [space] dropout: zoo::mlp: expected a finite number in [0, 1] as \"dropout\", got -1\n");
  EXPECT_EQ(line("norm = [\"batch\", \"layr\"]"), ":12: [space] norm: zoo::mlp: expected one of none, batch, layer as \"norm\", got \"layr\"\n");
}

TEST_F(FaultTest, DeviceThatIsNotThereIsToldBeforeAnythingIsTrained) {
  const auto file = study_file("s");
  const auto text = bytes(file);
  for (const std::string device : {"cuda:99", "cuda:x", "cuda:"}) {
    auto with = text;
    std::ofstream(file) << with.replace(with.find("[plan]\n"), 7, "[plan]\ndevice = \"" + device + "\"\n");
    const auto outcome = hfta({"sweep", file});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "hfta: " + file + ":15: [plan] device: expected " + (device == "cuda:99" ? "a device that is there" : "cpu, cuda or cuda:<number>") + ", got '" + device + "'\n");
    EXPECT_FALSE(fs::exists(folder / "s"));
  }
}

TEST_F(FaultTest, EmptyFileSaysWhatItLacks) {
  const auto file = (folder / "s.toml").string();
  std::ofstream(file) << "";
  EXPECT_EQ(hfta({"sweep", file}).err, "hfta: " + file + ": [data] kind: expected one of fashion_mnist, idx, csv, synthetic, got none\n");
}

TEST_F(FaultTest, FolderThatCannotBeMadeIsOneLine) {
  const auto file = study_file("s");
  auto text = bytes(file);
  const auto path = (folder / "s").string();
  std::ofstream(file) << text.replace(text.find(path), path.size(), "/dev/null/s");
  const auto outcome = hfta({"sweep", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "hfta: cannot make the folder /dev/null/s: Not a directory\n");
}

TEST_F(FaultTest, TruncatedDataFileIsOneLine) {
  const fs::path real = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(real)) GTEST_SKIP() << "needs Debian's package dataset-fashion-mnist";
  fs::create_directories(folder / "data");
  for (const auto& entry : fs::directory_iterator(real)) fs::copy_file(entry.path(), folder / "data" / entry.path().filename());
  fs::resize_file(folder / "data" / "train-images-idx3-ubyte.gz", 1000000);
  const auto file = (folder / "s.toml").string();
  std::ofstream(file) << "[data]\nkind = \"idx\"\npath = \"" << (folder / "data").string() << "\"\n[model]\nname = \"mlp\"\n[space]\nlr = [0.1, 0.2]\n[output]\nfolder = \"" << (folder / "s").string() << "\"\n";
  const auto outcome = hfta({"sweep", file});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(StartsWith("hfta: "), HasSubstr("train-images-idx3-ubyte.gz")));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  EXPECT_FALSE(fs::exists(folder / "s"));
}

}  // namespace
}  // namespace hfta::cli::test
