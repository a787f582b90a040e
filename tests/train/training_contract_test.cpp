// Contracts over trainings of 20 steps: every kind of model against plain LibTorch, one model at a time.
#include "hfta/base/generator.h"
#include "hfta/base/threads.h"
#include "hfta/hfta.h"
#include "hfta/program/random.h"
#include "tests/support.h"
#include "tests/train/contract_models.h"

namespace training_contract_test {

using namespace hfta::test;
using at::Tensor;

constexpr std::int64_t kLanes = 4;
constexpr int kSteps = 20;
const std::vector<double> kRates{0.01, 0.003, 0.02, 0.001};

struct Way {
  std::int64_t width, workers;
  torch::ScalarType dtype;
};

class TrainingContractTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { torch::set_default_dtype(c10::scalarTypeToTypeMeta(GetParam().dtype)); }
  void TearDown() override { torch::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat)); }
};

std::pair<Tensor, Tensor> batch(int step) {
  auto random = hfta::base::seeded_generator(static_cast<std::uint64_t>(100 + step));
  return {torch::randn({6, 12}, random), torch::randint(5, {6}, random)};
}

template <typename Net>
Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) { return nn::functional::cross_entropy(net->forward(x), y); }

/// The plain program `manual_seed(lane); build; train`.
template <typename Net, typename Optimizer, typename Options>
struct Solo {
  Solo(std::int64_t lane, Options options) : random(hfta::base::seeded_generator(static_cast<std::uint64_t>(lane))) {
    {
      const hfta::base::DefaultGeneratorScope scope(random);
      net = Net(static_cast<int>(lane));
    }
    by = std::make_unique<Optimizer>(net->parameters(), options);
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    const hfta::base::IntraOpThreads threads(1);
    const hfta::program::LaneRandom scope(random);
    by->zero_grad();
    auto loss = loss_of(net, x, y);
    loss.backward();
    by->step();
    return loss.detach();
  }
  at::Generator random;
  Net net{nullptr};
  std::unique_ptr<Optimizer> by;
};

/// Losses of all steps and outputs at the end; all tensors too, where the optimizer does not amplify the rounding noise of gradients that
/// are zero in truth (Adam does).
template <typename Net, typename Theirs, typename Options, typename Make>
void expect_equal_training(Make make, const std::function<Options(double)>& options_of, bool compares_tensors) {
  const auto [width, workers, dtype] = TrainingContractTest::GetParam();
  hfta::Array<Net> array(kLanes, [](std::int64_t lane) { return Net(static_cast<int>(lane)); });
  auto optimizer = make(array);
  auto step = hfta::record(array, optimizer, loss_of<Net>, {}, {.width = width, .workers = workers});
  std::vector<Tensor> losses;
  for (int i = 0; i < kSteps; ++i) {
    const auto [x, y] = batch(i);
    losses.push_back(step(x, y));
  }
  array.eval();
  const auto wide = tolerance(dtype, 10);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    Solo<Net, Theirs, Options> solo(lane, options_of(kRates[lane]));
    for (int i = 0; i < kSteps; ++i) {
      const auto [x, y] = batch(i);
      ASSERT_TRUE(close(losses[i][lane], solo.step(x, y), wide)) << "loss of lane " << lane << ", step " << i << '\n' << step->report();
    }
    solo.net->eval();
    const auto x = batch(50).first;
    const auto expected = solo.net->forward(x).detach();
    EXPECT_TRUE(close(array.lane(lane)->forward(x).detach(), expected, wide, std::max(1.0, expected.abs().max().template item<double>()))) << "outputs of lane " << lane;
    if (!compares_tensors) continue;
    const auto parameters = solo.net->parameters(), buffers = solo.net->buffers();
    for (std::size_t k = 0; k < parameters.size(); ++k)
      EXPECT_TRUE(close(array.lane_parameters(lane)[k].detach(), parameters[k].detach(), wide)) << array.parameters()[k].name << " of lane " << lane;
    for (std::size_t k = 0; k < buffers.size(); ++k) EXPECT_TRUE(close(array.lane_buffers(lane)[k], buffers[k], wide)) << array.buffers()[k].name << " of lane " << lane;
  }
}

template <typename Net>
void expect_contract_1() {
  expect_equal_training<Net, torch::optim::SGD, torch::optim::SGDOptions>(
      [](auto& array) { return hfta::optim::SGD(array, {.lr = kRates, .momentum = 0.9}); }, [](double lr) { return torch::optim::SGDOptions(lr).momentum(0.9); }, true);
  expect_equal_training<Net, torch::optim::Adam, torch::optim::AdamOptions>([](auto& array) { return hfta::optim::Adam(array, {.lr = kRates}); },
                                                                                             [](double lr) { return torch::optim::AdamOptions(lr); }, false);
}

TEST_P(TrainingContractTest, Mlp) { expect_contract_1<Mlp>(); }
TEST_P(TrainingContractTest, Cnn) { expect_contract_1<Cnn>(); }
TEST_P(TrainingContractTest, Gru) { expect_contract_1<Recurrent>(); }
TEST_P(TrainingContractTest, Transformer) { expect_contract_1<Encoder>(); }
TEST_P(TrainingContractTest, Embedding) { expect_contract_1<Words>(); }

INSTANTIATE_TEST_SUITE_P(Ways, TrainingContractTest, ::testing::Values(Way{1, 2, torch::kFloat}, Way{3, 2, torch::kFloat}, Way{4, 1, torch::kFloat}, Way{1, 1, torch::kDouble}, Way{3, 1, torch::kDouble}),
                         [](const auto& info) {
                           const auto& way = info.param;
                           return "Width" + std::to_string(way.width) + "Workers" + std::to_string(way.workers) + (way.dtype == torch::kFloat ? "Float" : "Double");
                         });

/// Contract 1, the last sentence: width 1 with LibTorch's own lowerings.
template <typename Net>
void expect_same_bits_as_plain_steps() {
  const auto build = [](std::int64_t lane) { return Net(static_cast<int>(lane)); };
  hfta::Array<Net> recorded(kLanes, build), plain(kLanes, build);
  hfta::optim::Adam a(recorded, {.lr = kRates}), b(plain, {.lr = kRates});
  auto step_a = hfta::record(recorded, a, loss_of<Net>, {}, {.width = 1, .workers = 2, .measures_lowerings = false});
  auto step_b = hfta::plain(plain, b, loss_of<Net>, {}, {.intra_op_threads = 1, .recorded = false});
  for (int i = 0; i < kSteps; ++i) {
    const auto [x, y] = batch(i);
    ASSERT_TRUE(same_bits(step_a(x, y), step_b(x, y))) << "step " << i << '\n' << step_a->report();
  }
  for (const auto stacks : {&hfta::lanes::ArrayBase::parameters, &hfta::lanes::ArrayBase::buffers})
    for (std::size_t k = 0; k < (recorded.*stacks)().size(); ++k)
      EXPECT_TRUE(same_bits((recorded.*stacks)()[k].tensor.detach(), (plain.*stacks)()[k].tensor.detach())) << (plain.*stacks)()[k].name;
}

TEST(OwnLoweringsTest, MlpIsBitEqual) { expect_same_bits_as_plain_steps<Mlp>(); }
TEST(OwnLoweringsTest, CnnIsBitEqual) { expect_same_bits_as_plain_steps<Cnn>(); }
TEST(OwnLoweringsTest, GruIsBitEqual) { expect_same_bits_as_plain_steps<Recurrent>(); }
TEST(OwnLoweringsTest, LstmIsBitEqual) { expect_same_bits_as_plain_steps<LongShort>(); }
TEST(OwnLoweringsTest, TransformerIsBitEqual) { expect_same_bits_as_plain_steps<Encoder>(); }
TEST(OwnLoweringsTest, EmbeddingIsBitEqual) { expect_same_bits_as_plain_steps<Words>(); }

}  // namespace training_contract_test
