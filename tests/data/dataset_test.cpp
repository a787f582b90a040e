#include "hfta/data/dataset.h"

#include "tests/data/files.h"
#include "tests/support.h"

namespace dataset_test {

using namespace hfta::data;
using hfta::test::refusal;

// Item i has the input i, so that items can be told apart.
Dataset numbered(std::int64_t items, std::int64_t classes) {
  const auto number = torch::arange(items, torch::kLong);
  return {number.to(torch::kFloat).unsqueeze(1), classes ? number % classes : number.to(torch::kFloat), classes, {}};
}

TEST(SplitTest, PartsAreDisjointAndWhole) {
  const auto dataset = numbered(103, 5);
  const auto [train, held_out] = split(dataset, {.fraction = 0.2, .seed = 3});
  const auto all = std::get<0>(torch::cat({train.inputs, held_out.inputs}).flatten().sort());
  EXPECT_TRUE(torch::equal(all, dataset.inputs.flatten()));
  EXPECT_TRUE(torch::equal(train.inputs.flatten().to(torch::kLong) % 5, train.targets)) << "targets go with their inputs";
  EXPECT_EQ(train.classes, 5);
}

TEST(SplitTest, StratifiedTakesTheShareOfEachClass) {
  auto dataset = numbered(100, 2);
  dataset.targets = (torch::arange(100) >= 80).to(torch::kLong);
  const auto held_out = split(dataset, {.fraction = 0.25, .seed = 1}).held_out;
  EXPECT_TRUE(torch::equal(torch::bincount(held_out.targets), torch::tensor({20, 5}, torch::kLong)));
}

TEST(SplitTest, SameSeedHoldsOutTheSameItems) {
  const auto dataset = numbered(60, 3);
  const auto items = [&](std::uint64_t seed, bool stratified) {
    return split(dataset, {.fraction = 0.3, .seed = seed, .stratified = stratified}).held_out.inputs;
  };
  torch::manual_seed(5);
  const auto first = items(7, true), plain = items(7, false);
  torch::manual_seed(6);
  EXPECT_TRUE(torch::equal(items(7, true), first));
  EXPECT_TRUE(torch::equal(items(7, false), plain));
  EXPECT_FALSE(torch::equal(items(8, true), first));
  EXPECT_FALSE(torch::equal(items(8, false), plain));
}

TEST(SplitTest, ClassesShareWhatRoundingLeaves) {
  auto dataset = numbered(11, 3);
  dataset.targets = torch::tensor({0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2}, torch::kLong);
  const auto held_out = split(dataset, {.fraction = 0.25, .seed = 1}).held_out;
  EXPECT_TRUE(torch::equal(torch::bincount(held_out.targets, {}, 3), torch::tensor({2, 1, 0}, torch::kLong))) << "of 1.5, 0.75 and 0.5";
}

TEST(SplitTest, HoldsOutAtLeastOneItem) {
  EXPECT_EQ(split(numbered(5, 5), {.fraction = 0.1}).held_out.size(), 1);
  EXPECT_EQ(split(numbered(5, 0), {.fraction = 0.99}).train.size(), 1);
}

TEST(SplitTest, BadFractionIsRefused) {
  EXPECT_EQ(refusal([] { split(numbered(5, 0), {.fraction = 1}); }), "data::split: expected a fraction in (0, 1), got 1");
  EXPECT_EQ(refusal([] { split(numbered(1, 0), {}); }), "data::split: expected at least 2 items, got 1");
}

TEST(DatasetCheckTest, WrongTargetsAreRefused) {
  auto dataset = numbered(6, 3);
  dataset.classes = 2;
  EXPECT_EQ(refusal([&] { check(dataset, "x"); }), "data::Dataset: expected class numbers in [0, 2) in x, got 2");
  dataset.targets = dataset.targets.slice(0, 0, 4);
  EXPECT_EQ(refusal([&] { check(dataset, "x"); }), "data::Dataset: expected as many targets as inputs in x, got 6 inputs and 4 targets");
  EXPECT_EQ(refusal([&] { check({}, "x"); }), "data::Dataset: expected at least one item in x, got none");
}

TEST(ScalingTest, FeaturesGetMeanZeroAndDeviationOne) {
  Dataset dataset{torch::tensor({{1.f, 5.f}, {3.f, 5.f}}), torch::zeros({2}, torch::kLong), 1, {}};
  const auto result = scaled(dataset, scaling_of(dataset));
  EXPECT_TRUE(hfta::test::close(result.inputs, torch::tensor({{-1.f, 0.f}, {1.f, 0.f}})));
  EXPECT_EQ(refusal([&] {
              scaled(dataset, {torch::zeros({3}), torch::ones({3})});
            }),
            "data::scaled: expected the scaling of items of shape [2], got one of shape [3]");
}

TEST(BlobsTest, SeedsDecideTheValues) {
  const auto make = [](std::uint64_t seed, std::uint64_t centres) {
    return blobs({.items = 50, .shape = {1, 3, 2}, .classes = 4, .seed = seed, .centre_seed = centres});
  };
  const auto a = make(1, 1);
  EXPECT_EQ(a.inputs.sizes(), (torch::IntArrayRef{50, 1, 3, 2}));
  EXPECT_TRUE(torch::equal(torch::bincount(a.targets), torch::tensor({13, 13, 12, 12}, torch::kLong)));
  EXPECT_TRUE(torch::equal(make(1, 1).inputs, a.inputs));
  EXPECT_FALSE(torch::equal(make(2, 1).inputs, a.inputs));
  const auto centre = [](const Dataset& d) { return d.inputs.index_select(0, d.targets.eq(0).nonzero().squeeze(1)).mean(0); };
  const auto many = [](std::uint64_t seed) { return blobs({.items = 4000, .classes = 4, .seed = seed, .centre_seed = 9}); };
  EXPECT_TRUE(hfta::test::close(centre(many(1)), centre(many(2)), {0, 0.2})) << "the same problem";
}

TEST(BlobsTest, BadSizesAreRefused) {
  EXPECT_EQ(refusal([] { blobs({.items = 0}); }), "data::blobs: expected at least 1 item, got 0");
  EXPECT_EQ(refusal([] { blobs({.classes = 1}); }), "data::blobs: expected at least 2 classes, got 1");
  EXPECT_EQ(refusal([] { blobs({.shape = {2, 0}}); }), "data::blobs: expected sizes of at least 1 in the shape, got 0");
  EXPECT_EQ(refusal([] { blobs({.spread = -1}); }), "data::blobs: expected a spread of at least 0, got -1");
}

}  // namespace dataset_test
