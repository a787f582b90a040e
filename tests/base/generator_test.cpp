#include "hfta/base/generator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace {

using hfta::base::DefaultGeneratorScope;
using hfta::base::seeded_generator;

TEST(SeededGeneratorTest, DrawsWhatManualSeedDraws) {
  torch::manual_seed(17);
  const auto expected = torch::rand({5, 3});
  EXPECT_TRUE(torch::equal(torch::rand({5, 3}, seeded_generator(17)), expected));
}

TEST(DefaultGeneratorScopeTest, CarriesTheStateBothWays) {
  torch::manual_seed(3);
  const auto first = torch::rand({4}), second = torch::rand({4});
  auto generator = seeded_generator(3);
  torch::manual_seed(99);
  const auto untouched = torch::rand({2});
  torch::manual_seed(99);
  {
    const DefaultGeneratorScope scope(generator);
    EXPECT_TRUE(torch::equal(torch::rand({4}), first));
  }
  EXPECT_TRUE(torch::equal(torch::rand({4}, generator), second)) << "the lane's stream goes on where the scope left it";
  EXPECT_TRUE(torch::equal(torch::rand({2}), untouched)) << "the process's own stream is as before";
}

TEST(DefaultGeneratorScopeTest, ThreadsDoNotMixTheirStreams) {
  const auto draw = [](std::uint64_t seed) {
    const DefaultGeneratorScope scope(seeded_generator(seed));
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 50; ++i) parts.push_back(torch::rand({7}));
    return torch::cat(parts);
  };
  const auto expected_a = draw(1), expected_b = draw(2);
  at::Tensor a, b;
  std::thread other([&] { b = draw(2); });
  a = draw(1);
  other.join();
  EXPECT_TRUE(torch::equal(a, expected_a));
  EXPECT_TRUE(torch::equal(b, expected_b));
}

}  // namespace
