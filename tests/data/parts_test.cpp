#include "hfta/data/parts.h"

#include "tests/data/files.h"
#include "tests/support.h"

namespace {

using namespace hfta::data;
using hfta::test::idx_bytes;
using hfta::test::refusal;
using hfta::test::TemporaryFolder;

TEST(LoadTest, BlobsComeInThreeParts) {
  const auto parts = load("blobs", {{"items", 200}, {"shape", std::vector<double>{1, 4, 4}}, {"classes", 4}, {"validation", 0.25}});
  EXPECT_EQ(parts.train.size(), 150);
  EXPECT_EQ(parts.validation.size(), 50);
  EXPECT_EQ(parts.test.size(), 40);
  EXPECT_EQ(parts.test.input_shape(), (std::vector<std::int64_t>{1, 4, 4}));
  EXPECT_FALSE(torch::equal(parts.train.inputs.slice(0, 0, 40), parts.test.inputs));
}

TEST(LoadTest, LimitShortensTheTrainingPartOnly) {
  const auto parts = load("blobs", {{"items", 200}, {"limit", 30}});
  EXPECT_EQ(parts.train.size(), 30);
  EXPECT_EQ(parts.validation.size(), 20);
}

TEST(LoadTest, CsvIsScaledByItsTrainingPart) {
  const TemporaryFolder folder;
  std::string lines = "a,b,y\n";
  for (int i = 0; i < 100; ++i) lines += std::to_string(100 + i) + "," + std::to_string(i * i % 17) + "," + (i % 2 ? "odd" : "even") + "\n";
  const auto parts = load("csv", {{"train", folder.write("a.csv", lines)}, {"test_fraction", 0.2}, {"validation", 0.25}});
  EXPECT_EQ(parts.train.size(), 60);
  EXPECT_EQ(parts.validation.size(), 20);
  EXPECT_EQ(parts.test.size(), 20);
  EXPECT_EQ(parts.test.names, (std::vector<std::string>{"even", "odd"}));
  EXPECT_TRUE(hfta::test::close(parts.train.inputs.mean(0), torch::zeros({2}), {0, 1e-5}));
  EXPECT_TRUE(hfta::test::close(parts.train.inputs.std(0, false), torch::ones({2}), {0, 1e-5}));
}

TEST(LoadTest, CsvTestFileUsesTheClassesOfTheTrainingFile) {
  const TemporaryFolder folder;
  const auto train = folder.write("a.csv", "x,y\n1,a\n2,b\n3,a\n4,b\n"), test = folder.write("b.csv", "x,y\n1,b\n");
  EXPECT_EQ(load("csv", {{"train", train}, {"test", test}, {"validation", 0.5}}).test.targets.item<std::int64_t>(), 1);
  const auto wider = folder.write("c.csv", "x,z,y\n1,1,b\n");
  EXPECT_EQ(refusal([&] { load("csv", {{"train", train}, {"test", wider}}); }),
            "data::csv: expected 2 columns in \"" + wider + "\" as in \"" + train + "\", got 3");
}

TEST(LoadTest, IdxPartsHaveTheSameClasses) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx_bytes(8, {4, 1, 1}, "abcd"));
  folder.write("train-labels-idx1-ubyte", idx_bytes(8, {4}, std::string("\x04\x00\x01\x02", 4)));
  folder.write("t10k-images-idx3-ubyte", idx_bytes(8, {1, 1, 1}, "a"));
  folder.write("t10k-labels-idx1-ubyte", idx_bytes(8, {1}, std::string("\x01", 1)));
  const auto parts = load("idx", {{"folder", folder.path()}, {"validation", 0.5}});
  EXPECT_EQ(parts.test.classes, 5);
  EXPECT_EQ(parts.train.classes, 5);
}

TEST(LoadErrorTest, UnknownNamesListTheKnownOnes) {
  EXPECT_EQ(refusal([] { load("mnist", {}); }), "data::load: expected a dataset out of blobs, csv, fashion-mnist, idx, got \"mnist\"");
  EXPECT_EQ(refusal([] { load("fashion-mnist", {{"path", "x"}}); }),
            "data::fashion-mnist: expected an option out of validation, seed, limit, folder, got \"path\"");
  EXPECT_EQ(refusal([] { load("fashion-mnist", {{"folder", "/nowhere"}}); }), "data::idx: expected the folder \"/nowhere\", got none");
  EXPECT_EQ(refusal([] { load("idx", {}); }), "data::idx: expected a \"folder\", got none");
  EXPECT_EQ(refusal([] { load("csv", {}); }), "data::csv: expected \"train\", the path of a file, got none");
  EXPECT_EQ(refusal([] { load("csv", {{"train", "a"}, {"separator", "ab"}}); }), "data::csv: expected one character as \"separator\", got \"ab\"");
  EXPECT_EQ(refusal([] { load("blobs", {{"validation", 2}}); }), "data::blobs: expected a finite number in [0, 1] as \"validation\", got 2");
}

}  // namespace
