#include "hfta/train/recorded_function.h"

#include "hfta/base/error.h"
#include "hfta/base/threads.h"
#include "hfta/lanes/typed_array.h"
#include "hfta/program/random.h"
#include "tests/support.h"

namespace {

using at::Tensor;
using hfta::Array;
using hfta::test::close;
using hfta::test::same_bits;
using hfta::test::tolerance;
using hfta::train::Input;
using hfta::train::RecordedFunction;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct MlpImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(12, 9))}, two{register_module("two", nn::Linear(9, 5))};
  explicit MlpImpl(int) {}
  Tensor forward(const Tensor& x) { return two(torch::relu(one(x))); }
};
TORCH_MODULE(Mlp);

struct CnnImpl : nn::Module {
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)))}, two{register_module("two", nn::Conv2d(4, 6, 3))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(4))};
  nn::Dropout drop;
  nn::Linear head{register_module("head", nn::Linear(6, 5))};
  explicit CnnImpl(int lane) : drop(0.1 + 0.1 * lane) { register_module("drop", drop); }  // another p in each lane
  Tensor forward(const Tensor& x) {
    auto y = torch::max_pool2d(torch::relu(norm(one(x.view({-1, 1, 4, 3}).repeat({1, 1, 2, 2})))), 2);
    y = two(F::pad(y, F::PadFuncOptions({1, 1, 1, 1})));
    return head(drop(F::adaptive_avg_pool2d(y, F::AdaptiveAvgPool2dFuncOptions(1)).flatten(1)));
  }
};
TORCH_MODULE(Cnn);

struct RecurrentImpl : nn::Module {
  nn::GRU gru{register_module("gru", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(8, 5))};
  Tensor scale = register_parameter("scale", torch::randn({3}));
  explicit RecurrentImpl(int) {}
  Tensor forward(const Tensor& x) {
    const auto h = std::get<0>(gru->forward(x.view({-1, 4, 3}) * scale)).select(1, -1);
    auto sum = torch::zeros(h.sizes(), h.options());  // case A14: written in place
    sum += h;
    return head(sum);
  }
};
TORCH_MODULE(Recurrent);

struct LongShortImpl : nn::Module {
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(4, 5))};
  explicit LongShortImpl(int) {}
  Tensor forward(const Tensor& x) { return head(std::get<0>(lstm->forward(x.view({-1, 4, 3}))).select(1, -1)); }
};
TORCH_MODULE(LongShort);

struct EncoderImpl : nn::Module {
  nn::Embedding embedding{register_module("embedding", nn::Embedding(7, 8))};
  nn::TransformerEncoderLayer layer{register_module("layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(10).dropout(0.2)))};
  nn::Linear in{register_module("in", nn::Linear(3, 8))}, head{register_module("head", nn::Linear(8, 5))};
  explicit EncoderImpl(int) {}
  Tensor forward(const Tensor& x) {
    const auto y = in(x.view({-1, 4, 3})) + embedding(torch::arange(4)).unsqueeze(0);
    return head(layer(y.transpose(0, 1)).mean(0));
  }
};
TORCH_MODULE(Encoder);

template <typename Net>
hfta::train::LaneFunction loss_and_gradients(Array<Net>& array) {
  return [&array](std::int64_t lane, std::span<const Tensor> inputs) {
    Net net = array.lane(lane);
    for (auto& p : net->parameters()) p.mutable_grad() = Tensor();
    auto loss = F::cross_entropy(net->forward(inputs[0]), inputs[1]);
    loss.backward();
    std::vector<Tensor> results{loss.detach()};
    for (auto& p : net->parameters()) results.push_back(p.grad()), p.mutable_grad() = Tensor();
    return results;
  };
}

struct Case {
  std::int64_t width, workers;
  bool per_lane, training;
};

class RecordedFunctionTest : public ::testing::TestWithParam<std::tuple<Case, torch::ScalarType>> {};

template <typename Net>
void expect_equal_to_solo() {
  const auto [setting, dtype] = RecordedFunctionTest::GetParam();
  torch::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  constexpr std::int64_t lanes = 3;
  Array<Net> array(lanes, [](std::int64_t lane) { return Net(static_cast<int>(lane)); });
  Array<Net> solo(lanes, [](std::int64_t lane) { return Net(static_cast<int>(lane)); });
  array.train(setting.training), solo.train(setting.training);
  RecordedFunction recorded({&array}, loss_and_gradients(array), {.width = setting.width, .workers = setting.workers});
  const auto plain = loss_and_gradients(solo);
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(step);
    const auto x = setting.per_lane ? torch::randn({lanes, 6, 12}) : torch::randn({6, 12}), y = torch::randint(5, {6});
    const std::vector<Input> inputs{{x, setting.per_lane}, {y, false}};
    std::vector<std::vector<Tensor>> got(lanes);
    recorded.run(inputs, [&](std::int64_t first, std::int64_t width, std::span<const Tensor> results) {
      for (std::int64_t i = 0; i < width; ++i)
        for (const auto& r : results) got[first + i].push_back(r.defined() ? r[i].clone() : Tensor());
    });
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const hfta::base::IntraOpThreads threads(1);
      const hfta::program::LaneRandom random(solo.generator(lane));
      const auto expected = plain(lane, std::vector<Tensor>{setting.per_lane ? x[lane] : x, y});
      ASSERT_EQ(got[lane].size(), expected.size());
      double scale = 1;
      for (const auto& e : expected) scale = std::max(scale, e.abs().max().template item<double>());
      for (std::size_t k = 0; k < expected.size(); ++k)
        ASSERT_TRUE(close(got[lane][k], expected[k], tolerance(dtype), scale)) << "result " << k << " of lane " << lane << ", step " << step << '\n' << recorded.report();
      const at::NoGradGuard no_grad;
      for (std::size_t k = 0; k + 1 < expected.size(); ++k) {
        solo.lane_parameters(lane)[k].sub_(expected[k + 1], 0.05);
        array.lane_parameters(lane)[k].sub_(got[lane][k + 1], 0.05);
      }
      for (std::size_t k = 0; k < solo.buffers().size(); ++k)
        ASSERT_TRUE(close(array.lane_buffers(lane)[k], solo.lane_buffers(lane)[k], tolerance(dtype))) << "buffer " << k << " of lane " << lane;
    }
  }
  torch::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat));
}

TEST_P(RecordedFunctionTest, Mlp) { expect_equal_to_solo<Mlp>(); }
TEST_P(RecordedFunctionTest, CnnWithDropoutOfEachLane) { expect_equal_to_solo<Cnn>(); }
TEST_P(RecordedFunctionTest, Gru) { expect_equal_to_solo<Recurrent>(); }
TEST_P(RecordedFunctionTest, Lstm) { expect_equal_to_solo<LongShort>(); }
TEST_P(RecordedFunctionTest, Transformer) { expect_equal_to_solo<Encoder>(); }

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, torch::ScalarType>>& info) {
  const auto& c = std::get<0>(info.param);
  return "Width" + std::to_string(c.width) + "Workers" + std::to_string(c.workers) + (c.per_lane ? "PerLane" : "Shared") + (c.training ? "Train" : "Eval") +
         (std::get<1>(info.param) == torch::kFloat ? "Float" : "Double");
}

INSTANTIATE_TEST_SUITE_P(WidthsAndWorkers, RecordedFunctionTest,
                         ::testing::Combine(::testing::Values(Case{1, 1, false, true}, Case{3, 1, false, true}, Case{2, 2, false, true}, Case{3, 1, true, true},
                                                              Case{1, 2, true, true}, Case{3, 1, false, false}),
                                            ::testing::Values(torch::kFloat, torch::kDouble)),
                         name_of);

}  // namespace
