#include "hfta/base/error.h"
#include "hfta/hfta.h"
#include "tests/support.h"
#include "tests/train/trainer_setup.h"

/// Several steps in one call: bit for bit what as many calls give.
namespace steps_together_test {

using at::Tensor;
using hfta::Array;
using hfta::test::same_bits;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr std::int64_t kLanes = 5;

struct NetImpl : nn::Module {
  nn::Linear one{register_module("one", nn::Linear(6, 9))}, two{register_module("two", nn::Linear(9, 3))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(9))};
  Tensor forward(const Tensor& x) { return two(torch::dropout(torch::relu(norm(one(x))), 0.3, is_training())); }
};
TORCH_MODULE(Net);

std::tuple<Tensor, Tensor> loss_and_logits(Net& net, const Tensor& x, const Tensor& y) {
  const auto logits = net->forward(x);
  return {F::cross_entropy(logits, y), logits};
}

std::vector<hfta::train::Batch> batches(std::vector<std::int64_t> items) {
  std::vector<hfta::train::Batch> made;
  torch::manual_seed(3);
  for (const auto count : items) made.push_back(hfta::batch(torch::randn({count, 6}), torch::randint(3, {count})));
  return made;
}

/// An array in training, by a plan whose results do not depend on timing.
struct Course {
  Course(std::int64_t width, std::int64_t workers, hfta::train::StepOptions options)
      : step(hfta::record(array, adam, loss_and_logits, std::move(options), {.width = width, .workers = workers, .measures_lowerings = false})) {}

  Array<Net> array{kLanes, [](std::int64_t) { return Net(); }};
  hfta::optim::Adam adam{array, {.lr = std::vector<double>{0.01, 0.02, 0.003, 0.001, 0.03}}};
  decltype(hfta::record(array, adam, loss_and_logits)) step;
};

void expect_equal(const Array<Net>& a, const Array<Net>& b) {
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    for (std::size_t p = 0; p < a.lane_parameters(lane).size(); ++p)
      EXPECT_TRUE(same_bits(a.lane_parameters(lane)[p].detach(), b.lane_parameters(lane)[p].detach())) << "lane " << lane << ", parameter " << p;
    for (std::size_t p = 0; p < a.lane_buffers(lane).size(); ++p) EXPECT_TRUE(same_bits(a.lane_buffers(lane)[p], b.lane_buffers(lane)[p])) << "buffer " << p;
  }
}

class StepsTogetherTest : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {
 protected:
  std::int64_t width() const { return std::get<0>(GetParam()); }
  std::int64_t workers() const { return std::get<1>(GetParam()); }
};

TEST_P(StepsTogetherTest, GiveWhatAsManyCallsGive) {
  // Another shape between, and two updates whose gradients come from three batches each, with one batch left.
  const auto all = batches({8, 8, 8, 5, 8, 8, 8});
  for (const std::int64_t accumulate : {1, 3}) {
    const hfta::train::StepOptions options{.max_norm = hfta::optim::PerLane(0.5), .accumulate = accumulate};
    Course together(width(), workers(), options), apart(width(), workers(), options);
    for (int round = 0; round < 2; ++round) {
      const auto outputs = together.step.run(all);
      ASSERT_EQ(outputs.size(), all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto one = (*apart.step)(all[i]);
        EXPECT_TRUE(same_bits(outputs[i].losses, one.losses)) << "step " << i;
        EXPECT_TRUE(same_bits(outputs[i].extras.at(0), one.extras.at(0))) << "step " << i;
      }
      EXPECT_EQ(together.step->pending(), apart.step->pending());
    }
    expect_equal(together.array, apart.array);
    EXPECT_EQ(together.adam.steps(4), apart.adam.steps(4));
  }
}

TEST_P(StepsTogetherTest, HyperParametersMayChangeFromUpdateToUpdate) {
  const auto all = batches({8, 8, 8, 8, 8, 8});
  Course together(width(), workers(), {.accumulate = 2}), apart(width(), workers(), {.accumulate = 2});
  hfta::optim::Schedule fast(together.adam, hfta::optim::StepLR{.step_size = {1, 2, 3, 1, 2}, .gamma = 0.5});
  hfta::optim::Schedule slow(apart.adam, hfta::optim::StepLR{.step_size = {1, 2, 3, 1, 2}, .gamma = 0.5});
  std::vector<hfta::train::StepOutput> outputs;
  together.step->run(all, outputs, [&] { fast.step(); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(same_bits((*apart.step)(all[i]).losses, outputs[i].losses)) << "step " << i;
    if (i % 2 == 1) slow.step();
  }
  expect_equal(together.array, apart.array);
  EXPECT_EQ(together.adam.get("lr", 0), apart.adam.get("lr", 0));
  EXPECT_EQ(fast.steps(0), 3);
}

INSTANTIATE_TEST_SUITE_P(Plans, StepsTogetherTest, ::testing::Values(std::tuple(1, 1), std::tuple(1, 2), std::tuple(2, 2), std::tuple(5, 1)));

TEST(StepsTogetherTest, RefusalTellsWhichStepsWereMade) {
  Array<Net> array(3, [](std::int64_t) { return Net(); });
  hfta::optim::SGD sgd(array, {.lr = 0.1});
  auto step = hfta::record(array, sgd, [](Net& net, const Tensor& x, const Tensor& y) {
    const auto loss = F::cross_entropy(net->forward(x), y);
    return x.size(0) == 5 && loss.item<double>() > 0 ? loss * 2 : loss;  // reads the host
  });
  std::vector<hfta::train::StepOutput> outputs;
  const auto all = batches({8, 8, 8, 5, 8});
  EXPECT_THROW(step->run(all, outputs), hfta::Unsupported);
  EXPECT_EQ(outputs.size(), 3u);
  EXPECT_EQ(sgd.steps(0), 3);
  EXPECT_THROW(step->run({&all[3], 1}, outputs), hfta::Unsupported);
  EXPECT_TRUE(outputs.empty());
  step->run({}, outputs);
  EXPECT_TRUE(outputs.empty());
}

TEST(StepsTogetherTest, RunnerGoesOnPlainlyAfterThem) {
  Array<Net> array(3, [](std::int64_t) { return Net(); }), plain_array(3, [](std::int64_t) { return Net(); });
  hfta::optim::SGD sgd(array, {.lr = 0.1}), plain_sgd(plain_array, {.lr = 0.1});
  const auto loss = [](Net& net, const Tensor& x, const Tensor& y) {
    const auto value = F::cross_entropy(net->forward(x), y);
    return x.size(0) == 5 && value.item<double>() > 0 ? value * 2 : value;
  };
  hfta::train::Runner runner({&array}, sgd, hfta::lane_step(array, loss), {.accumulate = 2}, {.measures_lowerings = false});
  auto plain = hfta::plain(plain_array, plain_sgd, loss, {.accumulate = 2});
  const auto all = batches({8, 8, 8, 5, 8, 8});
  std::vector<hfta::train::StepOutput> outputs;
  int updates = 0;
  runner.run(all, outputs, [&] { ++updates; });
  ASSERT_EQ(outputs.size(), 6u);
  EXPECT_EQ(updates, 3);
  EXPECT_FALSE(runner.plan().recorded);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(same_bits(outputs[i].losses, (*plain)(all[i]).losses)) << "step " << i;
}

TEST(StepsTogetherTest, TrainerEndsWithTheSameBitsHoweverManyItMakes) {
  using hfta::test::Training;
  std::vector<std::vector<Tensor>> ends;
  std::vector<std::vector<std::vector<std::int64_t>>> steps_seen;
  for (const std::int64_t together : {1, 2, 8}) {
    hfta::train::TrainerOptions options;
    options.epochs = 3;
    options.plan = hfta::plan::Plan{.width = 2, .workers = 2, .measures_lowerings = false};
    options.steps_together = together;
    hfta::optim::Schedule* now = nullptr;
    hfta::train::Scheduled each{.step = [&] { now->step(); }};
    each.each_update = true;
    options.schedules.push_back(each);
    Training training(std::move(options));
    hfta::optim::Schedule schedule(training.adam, hfta::optim::CosineAnnealingLR{.t_max = 9});
    now = &schedule;
    auto& seen = steps_seen.emplace_back();
    hfta::train::Callbacks callbacks;
    callbacks.step = [&](const hfta::train::StepReport& report) {
      seen.push_back({report.epoch, report.step});
      return hfta::train::Request::GoOn;
    };
    training.go(callbacks);
    auto& end = ends.emplace_back();
    for (std::int64_t id = 0; id < 4; ++id)
      for (const auto& tensor : training.state(id)) end.push_back(tensor);
    for (const auto& lane : training.trainer.lanes()) end.push_back(torch::tensor(lane.epochs.at(2).at("loss"), torch::kDouble));
  }
  ASSERT_EQ(steps_seen[0].size(), 9u);
  for (std::size_t k = 1; k < ends.size(); ++k) {
    EXPECT_EQ(steps_seen[k], steps_seen[0]);
    for (std::size_t t = 0; t < ends[0].size(); ++t) EXPECT_TRUE(same_bits(ends[k][t], ends[0][t])) << "tensor " << t;
  }
}

TEST(StepsTogetherTest, AreAsManyAsTakeATenthOfASecond) {
  EXPECT_EQ(hfta::train::steps_together(0.1), 8);
  EXPECT_EQ(hfta::train::steps_together(30), 3);
  EXPECT_EQ(hfta::train::steps_together(4000), 1);
}

}  // namespace steps_together_test
