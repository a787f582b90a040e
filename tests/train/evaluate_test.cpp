#include "tests/train/models.h"

namespace evaluate_test {

using namespace hfta::test;

hfta::Array<Net> nets(std::int64_t lanes) {
  return hfta::Array<Net>(lanes, [](std::int64_t) { return Net(); });
}

TEST(EvaluateTest, EachLaneIsEvaluatedWithoutGradients) {
  const Data data(1);
  auto array = nets(3);
  array.eval();
  const torch::Tensor out = hfta::evaluate(array, [](Net& net, const torch::Tensor& x) { return net->forward(x); }, data.x[0]);
  EXPECT_FALSE(out.requires_grad());
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    SoloRun solo(lane);
    solo.net->eval();
    EXPECT_TRUE(close(out[lane], solo.net->forward(data.x[0]).detach()));
  }
}

// Case A3: evaluation leaves buffers as they are, and uses each lane's own.
TEST(EvaluateTest, BuffersAreUnchangedInEvaluationMode) {
  hfta::Array<torch::nn::BatchNorm1d> array(3, [](std::int64_t) { return torch::nn::BatchNorm1d(2); });
  const torch::NoGradGuard no_grad;
  array.buffers()[0].tensor.copy_(torch::tensor({{0.0F, 1.0F}, {2.0F, 3.0F}, {4.0F, 5.0F}}));
  array.buffers()[1].tensor.copy_(torch::tensor({{1.0F, 4.0F}, {9.0F, 16.0F}, {25.0F, 36.0F}}));
  array.eval();
  std::vector<torch::Tensor> before;
  for (const auto& buffer : array.buffers()) before.push_back(buffer.tensor.clone());
  const auto x = torch::tensor({{1.0F, 1.0F}, {7.0F, -3.0F}});
  const torch::Tensor out = hfta::evaluate(array, [](torch::nn::BatchNorm1d& norm, const torch::Tensor& x) { return norm->forward(x); }, x);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(array.buffers()[i].tensor, before[i]));
  const auto expected = (x - before[0].unsqueeze(1)) / (before[1].unsqueeze(1) + 1e-5).sqrt();
  EXPECT_TRUE(close(out, expected));
}

TEST(EvaluateTest, NestedResultsKeepTheirShape) {
  const Data data(1);
  auto array = nets(3);
  array.eval();
  const auto result = hfta::evaluate(array, [](Net& net, const torch::Tensor& x) {
    const auto out = net->forward(x);
    return std::tuple(out, std::vector<torch::Tensor>{out.argmax(1), out.sum()}, std::pair(x, out.size(0) * torch::ones({})));
  }, data.x[0]);
  EXPECT_EQ(std::get<0>(result).sizes(), (std::vector<std::int64_t>{3, 6, 5}));
  EXPECT_TRUE(same_bits(std::get<1>(result)[0], std::get<0>(result).argmax(2)));
  EXPECT_EQ(std::get<1>(result)[1].sizes(), (std::vector<std::int64_t>{3}));
  EXPECT_TRUE(same_bits(std::get<2>(result).first[2], data.x[0]));
  EXPECT_EQ(std::get<2>(result).second[1].item<float>(), 6);
}

struct PooledImpl : torch::nn::Module {
  torch::nn::Conv2d one{register_module("one", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 5, 3).padding(1)))}, two{register_module("two", torch::nn::Conv2d(5, 3, 2))};
  torch::nn::Linear three{register_module("three", torch::nn::Linear(6, 7))}, last{register_module("last", torch::nn::Linear(7, 4))};
  torch::Tensor pooled(const torch::Tensor& x) { return torch::max_pool2d(torch::relu(x), 2); }
};
TORCH_MODULE(Pooled);

/// Operators merged in an evaluation give what they give apart, at every width; results that are also read on stay right.
TEST(EvaluateTest, AMergedEvaluationIsThePlainOneAtEveryWidth) {
  constexpr std::int64_t kLanes = 5;
  hfta::Array<Pooled> array(kLanes, [](std::int64_t) { return Pooled(); });
  array.eval();
  const auto function = [](Pooled& net, const torch::Tensor& x) {
    const auto images = net->pooled(net->one(x)), sums = net->two(images);
    const auto hidden = torch::relu(net->three(net->pooled(sums).flatten(1)));
    return std::vector<torch::Tensor>{net->last(hidden), images, sums, hidden};
  };
  const auto x = torch::randn({9, 1, 10, 7}), again = torch::randn({9, 1, 10, 7});
  for (const std::int64_t width : {1, 2, 3, 4, 5}) {
    auto recorded = hfta::record_evaluate(array, function, {.width = width, .workers = 2});
    for (const auto& input : {x, again, x}) {
      const auto got = recorded(input), expected = hfta::evaluate(array, function, input);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t r = 0; r < got.size(); ++r) EXPECT_TRUE(close(got[r], expected[r])) << "width " << width << ", result " << r;
    }
  }
}

TEST(EvaluateTest, PerLaneInputsAndSeveralArrays) {
  hfta::Array<torch::nn::Linear> a(2, [](std::int64_t) { return torch::nn::Linear(3, 4); }), b(2, [](std::int64_t) { return torch::nn::Linear(4, 2); });
  const auto x = torch::randn({2, 5, 3});
  const torch::Tensor out = hfta::evaluate(std::tie(a, b), [](torch::nn::Linear& a, torch::nn::Linear& b, const torch::Tensor& x) {
    return b->forward(a->forward(x));
  }, hfta::per_lane(x));
  for (std::int64_t lane = 0; lane < 2; ++lane) EXPECT_TRUE(close(out[lane], b.lane(lane)->forward(a.lane(lane)->forward(x[lane])).detach()));
}

TEST(EvaluateTest, LanesThatDifferInShapeAreTold) {
  auto array = nets(2);
  const auto x = hfta::per_lane(torch::tensor({2, 3}));
  EXPECT_EQ(error_of([&] { hfta::evaluate(array, [](Net&, const torch::Tensor& n) { return torch::zeros({n.item<std::int64_t>()}); }, x); }),
            "train::evaluate: expected result 0 of lane 1 as lane 0's Float [2], got Float [3]");
  EXPECT_EQ(error_of([&] { hfta::evaluate(array, [](Net&, const torch::Tensor& n) { return std::vector<torch::Tensor>(n.item<std::int64_t>(), n); }, x); }),
            "train::evaluate: expected 2 results from lane 1 as from lane 0, got 3");
}

}  // namespace evaluate_test
