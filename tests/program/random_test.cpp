#include "hfta/program/random.h"

#include <thread>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "tests/support.h"

namespace {

using at::Tensor;
using hfta::base::seeded_generator;
using hfta::program::LaneRandom;
using hfta::test::same_bits;

std::vector<Tensor> draw() {
  const auto x = torch::ones({3, 4});
  return {torch::dropout(x, 0.4, true),
          torch::rand({3}),
          torch::randn({2, 2}),
          torch::randint(10, {7}),
          torch::randint(3, 9, {7}),
          torch::randperm(11),
          torch::rand_like(x),
          torch::randn_like(x),
          torch::randint_like(x, 5),
          torch::bernoulli(x * 0.5),
          torch::multinomial(x, 2),
          torch::empty({5}).uniform_(-1, 1),
          torch::empty({5}).normal_(),
          torch::empty({5}).exponential_(),
          torch::poisson(x * 3),
          torch::nn::functional::gumbel_softmax(x)};
}

TEST(LaneRandomTest, OperatorsDrawWhatManualSeedDraws) {
  torch::manual_seed(8);
  const auto expected = draw();
  auto generator = seeded_generator(8);
  torch::manual_seed(1);
  const auto next = torch::rand({1});
  torch::manual_seed(1);
  std::vector<Tensor> got;
  {
    const LaneRandom scope(generator);
    got = draw();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << "draw " << i;
  EXPECT_TRUE(same_bits(torch::rand({1}), next)) << "the process's generator is untouched";
}

TEST(LaneRandomTest, ThreadsDrawAtOnce) {
  torch::manual_seed(8);
  const auto expected = draw();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const LaneRandom scope(seeded_generator(8));
        const auto got = draw();
        for (std::size_t i = 0; i < got.size(); ++i) wrong += !torch::equal(got[i], expected[i]);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LaneRandomTest, OperatorsThatCanTakeNoGeneratorAreRefused) {
  const LaneRandom scope(seeded_generator(8));
  try {
    torch::native_dropout(torch::ones({3}), 0.5, true);
    FAIL() << "nothing thrown";
  } catch (const hfta::Unsupported& e) {
    EXPECT_STREQ(e.what(), "program::random: expected random operators that can take a lane's generator, got aten::native_dropout, which cannot");
  }
}

TEST(LaneRandomTest, ScopeIsLeftAfterAnException) {
  try {
    const LaneRandom scope(seeded_generator(8));
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(c10::impl::TorchDispatchModeTLS::stack_len(), 0);
}

}  // namespace
