#include "hfta/data/csv.h"

#include "tests/data/files.h"
#include "tests/support.h"

namespace {

using namespace hfta::data;
using hfta::test::refusal;
using hfta::test::TemporaryFolder;

TEST(CsvTest, NumbersAndNamedClassesAreRead) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.csv", "\xEF\xBB\xBFwidth, kind ,height\r\n1.5,b,2\r\n\r\n-3e1,\"a, x\",+4\r\n0,b,0\r\n");
  const auto dataset = read_csv(path, {.target = "kind"});
  EXPECT_TRUE(torch::equal(dataset.inputs, torch::tensor({{1.5f, 2.f}, {-30.f, 4.f}, {0.f, 0.f}})));
  EXPECT_TRUE(torch::equal(dataset.targets, torch::tensor({1, 0, 1}, torch::kLong)));
  EXPECT_EQ(dataset.names, (std::vector<std::string>{"a, x", "b"}));
  EXPECT_EQ(dataset.classes, 2);
}

TEST(CsvTest, NumberedClassesAreInTheOrderOfTheirValues) {
  const TemporaryFolder folder;
  const auto dataset = read_csv(folder.write("a.csv", "x;y\n1;10\n2;9\n3;100\n"), {.separator = ';'});
  EXPECT_EQ(dataset.names, (std::vector<std::string>{"9", "10", "100"}));
  EXPECT_TRUE(torch::equal(dataset.targets, torch::tensor({1, 0, 2}, torch::kLong)));
}

TEST(CsvTest, TargetCanBeANumberToPredict) {
  const TemporaryFolder folder;
  const auto dataset = read_csv(folder.write("a.csv", "0.5,1\n0.25,2\n"), {.target = "0", .classes = false, .header = false});
  EXPECT_EQ(dataset.classes, 0);
  EXPECT_TRUE(torch::equal(dataset.targets, torch::tensor({0.5f, 0.25f})));
  EXPECT_TRUE(torch::equal(dataset.inputs, torch::tensor({{1.f}, {2.f}})));
}

TEST(CsvTest, KnownClassNamesKeepTheirNumbers) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.csv", "x,y\n1,cat\n");
  EXPECT_EQ(read_csv(path, {.class_names = {"ant", "bee", "cat"}}).targets.item<std::int64_t>(), 2);
  EXPECT_EQ(refusal([&] {
              read_csv(path, {.class_names = {"ant", "bee"}});
            }),
            "data::csv: expected a class out of ant, bee in line 2 of \"" + path + "\", got \"cat\"");
}

TEST(CsvErrorTest, TheFaultyLineIsNamed) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text, const CsvOptions& options = {}) {
    const auto path = folder.write("a.csv", text);
    auto error = refusal([&] { read_csv(path, options); });
    for (auto at = error.find(path); at != std::string::npos; at = error.find(path)) error.replace(at, path.size(), "FILE");
    return error;
  };
  EXPECT_EQ(message("a,b\n1,2\n3,4,5\n"), "data::csv: expected 2 columns in line 3 of \"FILE\", got 3");
  EXPECT_EQ(message("a,b\n1,2\n,4\n"), "data::csv: expected a finite number in line 3, column a of \"FILE\", got \"\"");
  EXPECT_EQ(message("a,b\nnan,4\n"), "data::csv: expected a finite number in line 2, column a of \"FILE\", got \"nan\"");
  EXPECT_EQ(message("a,b\n1x,4\n"), "data::csv: expected a finite number in line 2, column a of \"FILE\", got \"1x\"");
  EXPECT_EQ(message("a,b\n1,\n"), "data::csv: expected a class in line 2, column b of \"FILE\", got nothing");
  EXPECT_EQ(message("a,b\n"), "data::csv: expected at least one line of values in \"FILE\", got none");
  EXPECT_EQ(message(""), "data::csv: expected at least one line of values in \"FILE\", got none");
  EXPECT_EQ(message("a;b\n1;2\n"), "data::csv: expected at least 2 columns (inputs and target) in \"FILE\", got 1 (is the separator ','?)");
  EXPECT_EQ(message("a,b\n1,2\n", {.target = "c"}), "data::csv: expected a target out of the columns a, b of \"FILE\", got \"c\"");
  EXPECT_EQ(refusal([&] { read_csv(folder / "none.csv", {}); }),
            "data::csv: expected a readable file \"" + (folder / "none.csv") + "\", got: No such file or directory");
}

}  // namespace
