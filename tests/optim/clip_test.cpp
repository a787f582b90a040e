#include "hfta/base/error.h"
#include "tests/optim/models.h"

namespace hfta::test {
namespace {

class ClipTest : public ::testing::TestWithParam<torch::ScalarType> {};

TEST_P(ClipTest, EqualsThatOfLoneModels) {
  auto array = odd_array(3, GetParam());
  array.to(device());
  torch::manual_seed(3);
  const auto gradients = random_gradients(array);
  const std::vector<double> max_norm{1.5, 1e9, 0.01};
  std::vector<std::vector<torch::Tensor>> expected;
  std::vector<double> norms;
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto solo = solo_parameters(array, lane);
    give_gradients(solo, gradients, lane);
    norms.push_back(torch::nn::utils::clip_grad_norm_(solo, max_norm[static_cast<std::size_t>(lane)]));
    expected.emplace_back();
    for (const auto& p : solo) expected.back().push_back(p.grad());
  }
  const auto got = optim::clip_gradients(gradients, max_norm);
  EXPECT_TRUE(close(got, torch::tensor(norms, torch::TensorOptions(GetParam()).device(device()))));
  for (std::size_t p = 0; p < gradients.size(); ++p)
    for (std::int64_t lane = 0; lane < 3; ++lane)
      EXPECT_TRUE(close(gradients[p].defined() ? gradients[p][lane] : torch::Tensor(), expected[static_cast<std::size_t>(lane)][p])) << "lane " << lane << ", parameter " << p;
}

INSTANTIATE_TEST_SUITE_P(Types, ClipTest, ::testing::Values(torch::kFloat, torch::kDouble, torch::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(ClipTest, LeavesLanesWithinTheirNormAndOthersThanABadOneAsTheyAre) {
  for (const bool dense : {true, false}) {
    auto gradient = torch::randn({3, 40});
    gradient[1].fill_(std::nan(""));
    if (!dense) gradient = torch::cat({gradient, gradient}, 1).as_strided({3, 40}, {80, 2});
    const auto before = gradient.clone();
    const auto norms = optim::clip_gradients(std::vector<torch::Tensor>{gradient}, {1e6, 1.0, std::numeric_limits<double>::infinity()});
    EXPECT_TRUE(same_bits(gradient, before));
    EXPECT_TRUE(close(norms[0], before[0].norm()));
    EXPECT_TRUE(std::isnan(norms[1].item<float>()));
  }
}

TEST(ClipTest, TellsWhatIsWrong) {
  const std::vector<torch::Tensor> gradients{torch::ones({3, 4})};
  const auto error = [&](const std::vector<double>& max_norm) -> std::string {
    try {
      optim::clip_gradients(gradients, max_norm);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({1, 2}), "optim::clip_gradients: expected gradients of 2 lanes as max_norm has entries, got [3, 4]");
  EXPECT_EQ(error({1, -2, 1}), "optim::clip_gradients: expected max_norm of lane 1 at least 0, got -2");
}

}  // namespace
}  // namespace hfta::test
