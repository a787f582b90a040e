#include "hfta/train/recorded_function.h"

#include "tests/train/lanes_against_solo.h"

namespace recorded_function_test {

using at::Tensor;
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

struct Case {
  std::int64_t width, workers;
  bool per_lane, training;
};

class RecordedFunctionTest : public ::testing::TestWithParam<std::tuple<Case, torch::ScalarType>> {};

template <typename Net>
void expect_equal_to_solo() {
  const auto [setting, dtype] = RecordedFunctionTest::GetParam();
  hfta::test::expect_lanes_equal_solo<Net>([](std::int64_t lane) { return Net(static_cast<int>(lane)); },
                                           [](Net& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net->forward(x), y); },
                                           {.width = setting.width, .workers = setting.workers, .per_lane = setting.per_lane, .training = setting.training, .dtype = dtype});
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

}  // namespace recorded_function_test
