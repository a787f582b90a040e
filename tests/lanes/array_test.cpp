#include "hfta/lanes/array.h"

#include <gmock/gmock.h>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "error_of.h"
#include "models.h"
#include "tests/support.h"

namespace array_test {

using namespace hfta::test;
using hfta::InvalidArgument;
using hfta::Unsupported;

TEST(ArrayTest, LanesHaveTheWeightsOfTheSeededModels) {
  const hfta::Array<Net> array({4, 9, 2}, [](std::int64_t) { return Net(); });
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    const auto expected = solo(array.seeds()[lane])->named_parameters();
    const auto got = array.lane(lane)->named_parameters();
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& p : expected) EXPECT_TRUE(same_bits(got[p.key()], p.value())) << p.key();
  }
}

TEST(ArrayTest, LanesDrawTheDropoutMasksOfTheSeededProgram) {
  auto array = nets(3);
  const auto x = torch::arange(20.).reshape({4, 5});
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto expected = solo(lane);
    const auto y = expected->forward(x), y2 = expected->forward(x);
    const hfta::base::DefaultGeneratorScope scope(array.generator(lane));
    EXPECT_TRUE(same_bits(array.lane(lane)->forward(x), y));
    EXPECT_TRUE(same_bits(array.lane(lane)->forward(x), y2));
  }
}

TEST(ArrayTest, RowsAreTheLanesTensorsAndStartOn64Bytes) {
  auto array = nets(5);
  ASSERT_EQ(array.parameters().size(), solo(0)->parameters().size());
  for (std::size_t p = 0; p < array.parameters().size(); ++p) {
    const auto& stack = array.parameters()[p];
    EXPECT_TRUE(stack.tensor.is_leaf());
    EXPECT_EQ(stack.trainable, stack.name != "frozen");
    EXPECT_EQ(stack.tensor.requires_grad(), stack.trainable);
    for (std::int64_t lane = 0; lane < 5; ++lane) {
      const auto row = stack.tensor.detach()[lane];
      const auto own = array.lane(lane)->named_parameters()[stack.name];
      EXPECT_EQ(own.data_ptr(), row.data_ptr());
      EXPECT_EQ(own.requires_grad(), stack.trainable);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.data_ptr()) % 64, 0u) << stack.name;
    }
  }
  for (const auto& stack : array.buffers()) EXPECT_EQ(array.lane(4)->named_buffers()[stack.name].data_ptr(), stack.tensor[4].data_ptr());
  array.lane(2)->named_parameters()["scale"].data().fill_(3);
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[2], torch::full({5}, 3.f)));
}

TEST(ArrayTest, PlainBackwardLeavesStackedGradients) {  // case A20
  auto array = nets(3);
  const auto x = torch::randn({6, 5});
  for (std::int64_t lane = 0; lane < 3; ++lane) array.lane(lane)->forward(x).square().sum().backward();
  array.stack_gradients();
  for (std::size_t p = 0; p < array.parameters().size(); ++p) {
    const auto& stack = array.parameters()[p];
    ASSERT_EQ(stack.tensor.grad().defined(), stack.trainable) << stack.name;
    if (!stack.trainable) continue;
    for (std::int64_t lane = 0; lane < 3; ++lane) EXPECT_EQ(array.lane_parameters(lane)[p].grad().data_ptr(), stack.tensor.grad()[lane].data_ptr());
  }
  const auto before = array.parameters()[0].tensor.grad().clone();
  array.lane(1)->forward(x).square().sum().backward();
  array.stack_gradients();
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.grad()[0], before[0]));
  EXPECT_FALSE(torch::equal(array.parameters()[0].tensor.grad()[1], before[1]));
  array.zero_grad();
  EXPECT_FALSE(array.parameters()[0].tensor.grad().defined());
  EXPECT_FALSE(array.lane_parameters(0)[0].grad().defined());
}

TEST(ArrayTest, BackwardThroughTheStackGivesTheLanesTheirRows) {
  auto array = nets(3);
  const auto stack = array.parameters()[0].tensor;
  stack.square().sum().backward();
  array.stack_gradients();
  for (std::int64_t lane = 0; lane < 3; ++lane) EXPECT_TRUE(same_bits(array.lane_parameters(lane)[0].grad(), 2 * array.lane_parameters(lane)[0]));
}

class TiedWeightImpl : public torch::nn::Module {
 public:
  TiedWeightImpl() {
    auto weight = register_parameter("first", torch::randn({4, 4}));
    register_parameter("second", weight);
    weight_ = weight;
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weight_).matmul(parameters()[1]); }
  torch::Tensor weight_;
};
TORCH_MODULE(TiedWeight);

TEST(ArrayTest, TiedTensorsAreStackedOnceAndStayTied) {  // case A21
  hfta::Array<TiedWeight> array(3, [](std::int64_t) { return TiedWeight(); });
  ASSERT_EQ(array.parameters().size(), 1u);
  EXPECT_EQ(array.parameters()[0].name, "first");
  ASSERT_EQ(array.registrations().size(), 2u);
  EXPECT_EQ(array.registrations()[1].index, 0u);
  const auto x = torch::randn({2, 4});
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    torch::manual_seed(lane);
    TiedWeight expected;
    expected->forward(x).sum().backward();
    array.lane(lane)->forward(x).sum().backward();
    EXPECT_TRUE(same_bits(array.lane_parameters(lane)[0].grad(), expected->weight_.grad()));
  }
  array.keep({2, 0});
  EXPECT_TRUE(array.lane(0)->parameters()[0].is_same(array.lane(0)->parameters()[1]));
}

TEST(ArrayTest, KeepMovesLanesAndFreesTheRest) {
  auto array = nets(5);
  const Net kept = array.lane(3), dropped = array.lane(1);
  const auto want_kept = kept->named_parameters()["scale"].detach().clone(), want_dropped = dropped->named_parameters()["scale"].detach().clone();
  const auto handle = array.lane(3);
  const c10::weak_intrusive_ptr<c10::StorageImpl> old(array.parameters()[0].tensor.storage().getWeakStorageImpl());
  const auto generation = array.generation();
  array.keep({3, 0});
  EXPECT_GT(array.generation(), generation);
  EXPECT_EQ(array.lanes(), 2);
  EXPECT_EQ(array.seeds(), (std::vector<std::uint64_t>{3, 0}));
  EXPECT_TRUE(old.expired());
  EXPECT_EQ(array.lane(0).net().ptr(), kept.ptr());
  EXPECT_TRUE(same_bits(kept->named_parameters()["scale"], want_kept));
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[0], want_kept));
  EXPECT_TRUE(same_bits(dropped->named_parameters()["scale"], want_dropped));
  EXPECT_EQ(error_of<InvalidArgument>([&] { handle->parameters(); }),
            "lanes::Lane: expected a handle taken since the lanes moved, got one of lane 3, which is lane 0 now");
}

TEST(ArrayTest, AppendedLanesAreThoseOfTheirSeeds) {
  auto array = nets(2);
  const Net first = array.lane(0);
  array.append({7, 8});
  ASSERT_EQ(array.lanes(), 4);
  EXPECT_EQ(array.lane(0).net().ptr(), first.ptr());
  for (std::int64_t lane = 0; lane < 4; ++lane)
    EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[lane], solo(array.seeds()[lane])->named_parameters()["scale"]));
}

TEST(ArrayTest, AFactoryThatFailsLeavesTheArrayAsItWas) {
  auto array = nets(2);
  const auto stack = array.parameters()[0].tensor;
  const auto generation = array.generation();
  const hfta::lanes::ArrayBase::Factory failing = [](std::int64_t lane) -> std::shared_ptr<torch::nn::Module> {
    if (lane == 3) throw std::runtime_error("no more");
    return Net().ptr();
  };
  EXPECT_EQ(error_of<std::runtime_error>([&] { array.append(failing, {5, 6}); }), "no more");
  EXPECT_EQ(array.lanes(), 2);
  EXPECT_EQ(array.generation(), generation);
  EXPECT_TRUE(array.parameters()[0].tensor.is_same(stack));
  EXPECT_EQ(array.lane_parameters(1)[0].data_ptr(), stack[1].data_ptr());
}

TEST(ArrayTest, CopyLaneCopiesValuesAndGenerator) {
  auto array = nets(3);
  array.copy_lane(2, 0);
  for (const auto& p : array.parameters()) EXPECT_TRUE(same_bits(p.tensor.detach()[0], p.tensor.detach()[2]));
  EXPECT_TRUE(torch::equal(torch::rand({3}, array.generator(0)), torch::rand({3}, array.generator(2))));
}

TEST(ArrayTest, ErrorsNameTheLaneAndTheDifference) {
  EXPECT_EQ(error_of<InvalidArgument>([] { hfta::Array<Net>(4, [](std::int64_t lane) { return Net(lane == 3 ? 9 : 7); }); }),
            "lanes::Array: expected lane 3 as lane 0, got parameter \"first.weight\" [9, 5] where lane 0 has [7, 5]");
  EXPECT_EQ(error_of<InvalidArgument>([] { hfta::Array<Net>(0, [](std::int64_t) { return Net(); }); }), "lanes::Array: expected at least one lane, got none");
  EXPECT_EQ(error_of<InvalidArgument>([] { hfta::Array<Net>(2, [](std::int64_t) { return Net(nullptr); }); }),
            "lanes::Array: expected the factory to build lane 0, got no module");
  auto array = nets(2);
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.keep({}); }), "lanes::Array: expected at least one lane to keep, got none");
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.keep({1, 1}); }), "lanes::Array: expected each lane at most once in keep(), got lane 1 twice");
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.keep({2}); }), "lanes::Array: expected a lane from 0 to 1, got 2");
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.lane(-1); }), "lanes::Array: expected a lane from 0 to 1, got -1");
}

TEST(ArrayTest, ReboundTensorsGoBackIntoTheirRows) {
  auto array = nets(3);
  const auto scale = array.lane(1)->named_parameters()["scale"];
  scale.set_data(torch::full({5}, 2.f));
  EXPECT_THAT(array.restore_rows(1), ::testing::ElementsAre("scale"));
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[1], torch::full({5}, 2.f)));
  EXPECT_EQ(scale.data_ptr(), array.parameters()[0].tensor[1].data_ptr());
  EXPECT_THAT(array.restore_rows(1), ::testing::IsEmpty());
}

TEST(ArrayTest, ACopyStandsOnItsOwn) {
  auto array = nets(2);
  const Net copy = array.lane(1, hfta::lanes::copy);
  EXPECT_TRUE(same_bits(copy->named_parameters()["scale"], solo(1)->named_parameters()["scale"]));
  copy->named_parameters()["scale"].data().zero_();
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[1], solo(1)->named_parameters()["scale"]));
}

/// Kernels that choose their way by layout and alignment: a channels-last convolution, a norm, a recurrent net.
class MixedImpl : public torch::nn::Module {
 public:
  MixedImpl() : conv_(torch::nn::Conv2dOptions(3, 5, 3)), norm_(5), gru_(torch::nn::GRUOptions(20, 7).bidirectional(true).batch_first(true)), head_(14, 3) {
    register_module("conv", conv_), register_module("norm", norm_), register_module("gru", gru_), register_module("head", head_);
    conv_->weight.set_data(conv_->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto h = torch::relu(norm_->forward(conv_->forward(x)));
    return head_->forward(std::get<0>(gru_->forward(h.permute({0, 2, 1, 3}).flatten(2))).select(1, -1));
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  torch::nn::GRU gru_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Mixed);

TEST(ArrayTest, ALaneTrainsBitForBitAsItsSoloRun) {
  hfta::Array<Mixed> array(3, [](std::int64_t) { return Mixed(); });
  std::vector<torch::Tensor> batches;
  for (int i = 0; i < 5; ++i) batches.push_back(torch::randn({4, 3, 6, 6}).contiguous(torch::MemoryFormat::ChannelsLast));
  const auto train = [&](Mixed net) {
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
    for (const auto& x : batches) adam.zero_grad(), net->forward(x).square().mean().backward(), adam.step();
  };
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    train(array.lane(lane));
    torch::manual_seed(lane);
    Mixed expected;
    train(expected);
    for (const auto& p : expected->named_parameters()) EXPECT_TRUE(same_bits(array.lane(lane)->named_parameters()[p.key()], p.value())) << p.key();
    for (const auto& b : expected->named_buffers()) EXPECT_TRUE(same_bits(array.lane(lane)->named_buffers()[b.key()], b.value())) << b.key();
  }
}

TEST(ArrayTest, ALaneOfNanChangesNoOther) {
  const auto x = torch::randn({6, 5});
  const auto run = [&](bool poisoned) {
    auto array = nets(3);
    if (poisoned)
      for (const auto& p : array.lane_parameters(1)) p.data().fill_(std::nanf(""));
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const hfta::base::DefaultGeneratorScope scope(array.generator(lane));
      array.lane(lane)->forward(x).square().sum().backward();
    }
    array.stack_gradients();
    array.append({8});
    array.keep({0, 3, 2, 1});
    std::vector<torch::Tensor> healthy;
    for (const auto& p : array.parameters()) {
      healthy.push_back(p.tensor.detach().slice(0, 0, 3).clone());
      if (p.trainable) healthy.push_back(p.tensor.grad().slice(0, 0, 3).clone());
    }
    for (const auto& b : array.buffers()) healthy.push_back(b.tensor.slice(0, 0, 3).clone());
    return healthy;
  };
  const auto with = run(true), without = run(false);
  for (std::size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(same_bits(with[i], without[i]));
}

}  // namespace array_test
