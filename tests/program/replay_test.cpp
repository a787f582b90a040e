#include "tests/program/solo.h"
#include "tests/support.h"

namespace {

using at::Tensor;
using hfta::test::executable_of;
using hfta::test::same_bits;
using hfta::test::Solo;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Records on one batch, then replays on others, with an in-place SGD step between; every result and every state tensor must be bit for
/// bit what a plain twin has.
template <typename Net>
void expect_replay_equals_plain(const std::function<Net()>& build, const std::function<Tensor(Net&, const std::vector<Tensor>&)>& loss,
                                const std::function<std::vector<Tensor>(int)>& batch) {
  torch::manual_seed(5);
  Solo<Net> replayed{build(), loss};
  torch::manual_seed(5);
  Solo<Net> plain{build(), loss};
  const auto buffers_before = replayed.net->buffers();
  std::vector<Tensor> saved;
  for (const auto& b : buffers_before) saved.push_back(b.clone());
  auto recording = replayed.record(batch(0));
  for (std::size_t k = 0; k < saved.size(); ++k) replayed.net->buffers()[k].copy_(saved[k]);
  replayed.generator = hfta::base::seeded_generator(0);
  EXPECT_TRUE(recording.captured.empty());
  auto executable = executable_of(std::move(recording.program));
  for (int step = 0; step < 4; ++step) {
    const auto inputs = batch(step);
    replayed.bind(executable, inputs);
    executable.run();
    const auto expected = plain.plain(inputs);
    ASSERT_EQ(executable.results(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) ASSERT_TRUE(same_bits(executable.result(k), expected[k])) << "result " << k << ", step " << step;
    torch::NoGradGuard no_grad;
    for (std::size_t k = 0; k + 1 < expected.size(); ++k) {
      if (!expected[k + 1].defined()) continue;
      replayed.net->parameters()[k].sub_(executable.result(k + 1), 0.05);
      plain.net->parameters()[k].sub_(expected[k + 1], 0.05);
    }
    const auto a = replayed.state(), b = plain.state();
    for (std::size_t k = 0; k < a.size(); ++k) ASSERT_TRUE(same_bits(a[k], b[k])) << "state " << k << ", step " << step;
  }
}

std::vector<Tensor> images(int step) {
  torch::manual_seed(100 + step);
  auto x = torch::randn({6, 3, 9, 9});
  return {x, torch::randint(5, {6})};
}

TEST(ReplayTest, MlpIsBitEqual) {
  expect_replay_equals_plain<nn::Sequential>(
      [] { return nn::Sequential(nn::Flatten(), nn::Linear(243, 17), nn::ReLU(), nn::Linear(17, 5)); },
      [](nn::Sequential& net, const std::vector<Tensor>& in) { return F::cross_entropy(net->forward(in[0]), in[1]); }, images);
}

TEST(ReplayTest, CnnWithBatchNormAndDropoutIsBitEqual) {
  expect_replay_equals_plain<nn::Sequential>(
      [] {
        return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 7, 3).padding(1)), nn::BatchNorm2d(7), nn::ReLU(), nn::MaxPool2d(2), nn::Dropout(0.3),
                              nn::Flatten(), nn::Linear(7 * 16, 5));
      },
      [](nn::Sequential& net, const std::vector<Tensor>& in) { return F::cross_entropy(net->forward(in[0]), in[1]); }, images);
}

struct RecurrentImpl : nn::Module {
  nn::GRU gru{register_module("gru", nn::GRU(nn::GRUOptions(9, 8).num_layers(2).bidirectional(true).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(16, 5))};
  Tensor forward(const Tensor& x) {
    const auto h = std::get<0>(gru->forward(x.flatten(1, 2))).select(1, -1);
    auto sum = torch::zeros(h.sizes());  // case A14: written in place
    sum += h;
    return head->forward(sum);
  }
};
TORCH_MODULE(Recurrent);

TEST(ReplayTest, GruWithAnInPlaceSumIsBitEqual) {
  expect_replay_equals_plain<Recurrent>([] { return Recurrent(); },
                                        [](Recurrent& net, const std::vector<Tensor>& in) { return F::cross_entropy(net->forward(in[0]), in[1]); }, images);
}

struct LongShortImpl : nn::Module {
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(9, 6).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(6, 5))};
  Tensor forward(const Tensor& x) { return head->forward(std::get<0>(lstm->forward(x.flatten(1, 2))).select(1, -1)); }
};
TORCH_MODULE(LongShort);

TEST(ReplayTest, LstmIsBitEqual) {
  expect_replay_equals_plain<LongShort>([] { return LongShort(); },
                                        [](LongShort& net, const std::vector<Tensor>& in) { return F::cross_entropy(net->forward(in[0]), in[1]); }, images);
}

struct EncoderImpl : nn::Module {
  nn::TransformerEncoderLayer layer{register_module("layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(12, 3).dim_feedforward(20).dropout(0.2)))};
  nn::Linear in{register_module("in", nn::Linear(9, 12))}, head{register_module("head", nn::Linear(12, 5))};
  Tensor forward(const Tensor& x) { return head->forward(layer->forward(in->forward(x.flatten(1, 2)).transpose(0, 1)).mean(0)); }
};
TORCH_MODULE(Encoder);

TEST(ReplayTest, TransformerWithDropoutIsBitEqual) {
  expect_replay_equals_plain<Encoder>([] { return Encoder(); },
                                      [](Encoder& net, const std::vector<Tensor>& in) { return F::cross_entropy(net->forward(in[0]), in[1]); }, images);
}

TEST(ReplayTest, ArenaIsSmallerThanTheSumOfAllValues) {
  Solo<nn::Sequential> solo{nn::Sequential(nn::Linear(10, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 1)),
                            [](nn::Sequential& net, const std::vector<Tensor>& in) { return net->forward(in[0]).pow(2).mean(); }};
  auto program = hfta::program::simplified(solo.record({torch::randn({50, 10})}).program);
  std::int64_t sum = 0;
  for (const auto& memory : program.memories)
    if (memory.origin == hfta::program::Origin::Made) sum += memory.bytes;
  const auto executable = executable_of(std::move(program));
  EXPECT_GT(executable.arena_bytes(), 0);
  EXPECT_LT(executable.arena_bytes(), sum);
}

}  // namespace
