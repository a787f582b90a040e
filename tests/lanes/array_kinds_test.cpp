// Arrays of unusual models, and arrays under unusual use.
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "error_of.h"
#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/lanes/archive.h"
#include "hfta/lanes/state.h"
#include "models.h"
#include "python.h"
#include "tests/support.h"

namespace array_kinds_test {

using namespace hfta::test;
using hfta::InvalidArgument;
using hfta::Unsupported;
using hfta::lanes::ArrayBase;

/// A module of whatever tensors a test wants.
class BagImpl : public torch::nn::Module {
 public:
  explicit BagImpl(const std::function<void(BagImpl&)>& fill) { fill(*this); }
  torch::Tensor parameter(const std::string& name, torch::Tensor value, bool requires_grad = true) { return register_parameter(name, std::move(value), requires_grad); }
  torch::Tensor buffer(const std::string& name, torch::Tensor value) { return register_buffer(name, std::move(value)); }
  void rebind(const std::string& name, const torch::Tensor& value) { named_buffers()[name].set_data(value); }
  torch::Tensor outside;
};
TORCH_MODULE(Bag);

hfta::Array<Bag> bags(std::int64_t lanes, const std::function<void(BagImpl&)>& fill) {
  return hfta::Array<Bag>(lanes, [fill](std::int64_t) { return Bag(fill); });
}

void all_kinds(BagImpl& bag) {
  bag.parameter("scalar", torch::randn({}));
  bag.parameter("bf16", torch::randn({3}).to(torch::kBFloat16));
  bag.parameter("double", torch::randn({2, 3}, torch::kDouble));
  bag.parameter("last", torch::randn({4, 3, 2, 5}).contiguous(torch::MemoryFormat::ChannelsLast));
  bag.parameter("transposed", torch::randn({3, 5}).t());
  bag.parameter("none", torch::Tensor());
  bag.parameter("empty", torch::empty({0, 4}));
  bag.parameter("expanded", torch::randn({1, 3}).expand({4, 3}));
  bag.parameter("nan", torch::full({3}, std::nanf("")));
  bag.parameter("frozen", torch::randn({3}), false);
  bag.buffer("count", torch::tensor(7, torch::kLong));
  bag.buffer("mask", torch::tensor({true, false, true}));
  bag.buffer("wave", torch::randn({3}, torch::kComplexFloat));
}

TEST(ArrayKindsTest, EveryKindOfTensorBecomesARow) {
  auto array = bags(5, all_kinds);
  array.keep({4, 1, 2});
  array.append({11});
  array.copy_lane(0, 3);
  const std::vector<std::uint64_t> seeds{4, 1, 2, 4};
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    torch::manual_seed(seeds[lane]);
    const Bag solo(all_kinds);
    for (const auto& p : solo->named_parameters()) {
      const auto got = array.lane(lane)->named_parameters()[p.key()];
      EXPECT_TRUE(same_bits(got, p.value())) << p.key();
      EXPECT_EQ(got.strides(), p.key() == "expanded" ? p.value().contiguous().strides() : p.value().strides()) << p.key();
      EXPECT_EQ(got.requires_grad(), p.value().requires_grad());
    }
    for (const auto& b : solo->named_buffers()) EXPECT_TRUE(torch::equal(array.lane(lane)->named_buffers()[b.key()], b.value())) << b.key();
  }
  for (const auto& stack : array.parameters())
    for (std::int64_t lane = 0; lane < 4; ++lane)
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(stack.tensor[lane].data_ptr()) % 64, 0u) << stack.name;
}

TEST(ArrayKindsTest, EveryKindOfTensorSurvivesTheFile) {
  const Folder folder;
  auto array = bags(3, all_kinds);
  hfta::save_lane(array, 2, folder / "lane.pt");
  hfta::load_lane(array, 0, folder / "lane.pt");
  for (const auto& p : array.parameters()) EXPECT_TRUE(same_bits(p.tensor.detach()[0], p.tensor.detach()[2])) << p.name;
  for (const auto& b : array.buffers()) EXPECT_TRUE(torch::equal(b.tensor[0], b.tensor[2])) << b.name;
}

TEST(ArrayKindsTest, AModelWithoutTensorsIsAnArrayToo) {
  auto array = hfta::Array<torch::nn::ReLU>(3, [](std::int64_t) { return torch::nn::ReLU(); });
  array.keep({2, 0});
  array.append({5});
  array.zero_grad();
  array.stack_gradients();
  EXPECT_EQ(array.lanes(), 3);
  EXPECT_TRUE(array.parameters().empty());
  EXPECT_TRUE(array.device().is_cpu());
}

TEST(ArrayKindsTest, ThousandsOfLanesAreFine) {
  auto array = hfta::Array<torch::nn::Linear>(3000, [](std::int64_t) { return torch::nn::Linear(2, 1); });
  array.keep({2999, 17});
  torch::manual_seed(2999);
  EXPECT_TRUE(same_bits(array.lane(0)->weight, torch::nn::Linear(2, 1)->weight));
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

TEST(ArrayKindsTest, MemoryStaysFlatWhileLanesComeAndGo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer holds freed memory back";
#endif
  auto array = hfta::Array<torch::nn::Linear>(4, [](std::int64_t) { return torch::nn::Linear(64, 128); });
  const auto round = [&](std::uint64_t i) {
    array.append({100 + i, 200 + i});
    array.lane(5)->weight.mutable_grad() = torch::ones({128, 64});
    array.keep({5, 0, 3, 1});
  };
  for (std::uint64_t i = 0; i < 20; ++i) round(i);
  const auto before = resident_bytes();
  for (std::uint64_t i = 0; i < 200; ++i) round(i);
  EXPECT_LT(resident_bytes() - before, 2 << 20) << "one lane kept per round would be 6 MB";
  EXPECT_EQ(array.parameters()[0].tensor.storage().nbytes(), 4u * 128 * 64 * 4);
}

TEST(ArrayKindsTest, TwoThreadsWorkOnTwoArrays) {
  const auto life = [](std::uint64_t seed, std::vector<torch::Tensor>& values) {
    for (int i = 0; i < 20; ++i) {
      hfta::Array<Net> array({seed, seed + 1, seed + 2}, [](std::int64_t) { return Net(); });
      array.append({seed + 7});
      array.keep({3, 1});
      for (const auto& p : array.parameters()) values.push_back(p.tensor.detach().clone());
    }
  };
  std::vector<torch::Tensor> a, b, expected_a, expected_b;
  std::thread other([&] { life(50, b); });
  life(10, a);
  other.join();
  life(10, expected_a);
  life(50, expected_b);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], expected_a[i]) && same_bits(b[i], expected_b[i]));
}

TEST(ArrayKindsTest, SameViewIsTiedAndAnotherViewRefused) {
  auto array = bags(2, [](BagImpl& bag) { bag.buffer("again", bag.buffer("first", torch::randn({3})).detach()); });
  EXPECT_EQ(array.buffers().size(), 1u);
  array.keep({1});
  array.lane(0)->named_buffers()["first"].fill_(5);
  EXPECT_TRUE(same_bits(array.lane(0)->named_buffers()["again"], torch::full({3}, 5.f)));
  EXPECT_EQ(error_of<Unsupported>([] { bags(2, [](BagImpl& bag) { bag.buffer("part", bag.buffer("whole", torch::randn({3})).slice(0, 1)); }); }),
            "lanes::Array: expected tensors of their own memory, got \"part\" of lane 0, which is a view of \"whole\": register the same tensor twice to tie them");
  EXPECT_EQ(error_of<Unsupported>([] { bags(1, [](BagImpl& bag) { bag.buffer("s", torch::eye(3).to_sparse()); }); }),
            "lanes::Array: expected dense tensors, got \"s\" of lane 0, which is sparse");
  const auto halves = torch::randn({8});  // as the weights of a flattened RNN: one memory, no overlap
  EXPECT_EQ(bags(1, [&](BagImpl& bag) { bag.parameter("a", halves.slice(0, 0, 4)), bag.parameter("b", halves.slice(0, 4)); }).parameters().size(), 2u);
}

TEST(ArrayKindsTest, LanesThatShareATensorOrAModuleAreRefused) {
  const auto shared = torch::randn({3});
  EXPECT_EQ(error_of<InvalidArgument>([&] { bags(2, [&](BagImpl& bag) { bag.buffer("base", shared); }); }),
            "lanes::Array: expected a tensor of its own for \"base\" of lane 1, got one of an earlier lane");
  const Bag same([](BagImpl&) {});
  EXPECT_EQ(error_of<InvalidArgument>([&] { hfta::Array<Bag>(2, [&](std::int64_t) { return same; }); }),
            "lanes::Array: expected the factory to build a module of its own for lane 1, got that of an earlier lane");
}

TEST(ArrayKindsTest, EachDifferenceIsNamed) {
  using Fill = std::function<void(BagImpl&)>;
  const auto difference = [](const Fill& first, const Fill& second) {
    return error_of<InvalidArgument>([&] { hfta::Array<Bag>(2, [&](std::int64_t lane) { return Bag(lane == 0 ? first : second); }); });
  };
  const Fill one = [](BagImpl& bag) { bag.parameter("w", torch::ones({2, 3})); };
  const std::string start = "lanes::Array: expected lane 1 as lane 0, got ";
  EXPECT_EQ(difference(one, [](BagImpl& bag) { bag.parameter("w", torch::ones({2, 3}, torch::kDouble)); }), start + "parameter \"w\" Double where lane 0 has Float");
  EXPECT_EQ(difference(one, [](BagImpl& bag) { bag.parameter("v", torch::ones({2, 3})); }), start + "parameter \"v\" where lane 0 has parameter \"w\"");
  EXPECT_EQ(difference(one, [](BagImpl& bag) { bag.parameter("w", torch::ones({2, 3}), false); }), start + "parameter \"w\" frozen where lane 0 has a trainable one");
  EXPECT_EQ(difference(one, [](BagImpl& bag) { bag.parameter("w", torch::ones({3, 2}).t()); }), start + "parameter \"w\" strides [1, 2] where lane 0 has [3, 1]");
  EXPECT_EQ(difference(one, [](BagImpl&) {}), start + "nothing where lane 0 has parameter \"w\"");
  EXPECT_EQ(difference([](BagImpl&) {}, one), start + "parameter \"w\" [2, 3] where lane 0 has nothing");
  EXPECT_EQ(difference([](BagImpl& bag) { bag.parameter("v", bag.parameter("w", torch::ones({2}))); },
                       [](BagImpl& bag) { bag.parameter("w", torch::ones({2})), bag.parameter("v", torch::ones({2})); }),
            start + "parameter \"v\" a tensor of its own where lane 0 has tied to \"w\"");
}

TEST(ArrayKindsTest, ARebuiltRegistrationGoesBackIntoItsRow) {
  auto array = bags(2, [](BagImpl& bag) { bag.buffer("ema", torch::ones({3})), bag.parameter("w", torch::ones({2})); });
  auto bag = array.lane(1).net();
  bag->rebind("ema", torch::full({3}, 4.f));
  EXPECT_THAT(array.restore_rows(1), ::testing::ElementsAre("ema"));
  EXPECT_TRUE(same_bits(array.buffers()[0].tensor[1], torch::full({3}, 4.f)));
  EXPECT_EQ(bag->named_buffers()["ema"].data_ptr(), array.buffers()[0].tensor[1].data_ptr());
  bag->rebind("ema", torch::zeros({4}));
  bag->named_parameters()["w"].set_data(torch::zeros({2}));
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.restore_rows(1); }), "lanes::Array: expected \"ema\" of lane 1 as Float [3], got Float [4]");
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[1], torch::ones({2}))) << "nothing is written when something does not fit";
}

TEST(ArrayKindsTest, MemoryHeldElsewhereIsReported) {
  static int round = 0;  // a line is told once per process, also where tests are repeated
  const auto name = "w_kept_" + std::to_string(round++);
  testing::internal::CaptureStderr();
  bags(2, [&](BagImpl& bag) { bag.outside = bag.parameter(name, torch::ones({2, 3})).detach().t(); });
  bags(2, [](BagImpl& bag) { bag.parameter("w_viewed", torch::ones({2, 3}).t()); });
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("w_viewed"))) << "only its own base holds it";
  EXPECT_THAT(text,
              ::testing::HasSubstr("lanes::Array: the memory of \"" + name + "\" is also held by tensors that the module does not register: these keep the values that they have now"));
}

struct Log : hfta::lanes::LaneFollower {
  std::vector<std::string> lines;
  void lanes_moved(const std::vector<std::int64_t>& from) override { lines.push_back("moved " + testing::PrintToString(from)); }
  void lane_copied(std::int64_t source, std::int64_t target) override { lines.push_back("copied " + std::to_string(source) + " to " + std::to_string(target)); }
  void tensors_replaced() override { lines.push_back("replaced"); }
};

TEST(ArrayKindsTest, FollowersAreTold) {
  auto array = nets(3);
  Log log, gone;
  array.follow(&log);
  array.follow(&gone);
  array.unfollow(&gone);
  array.keep({2, 0});
  array.append({9});
  array.copy_lane(0, 1);
  array.to(torch::kDouble);
  EXPECT_THAT(log.lines, ::testing::ElementsAre("moved { 2, 0 }", "moved { 0, 1, -1 }", "copied 0 to 1", "replaced"));
  EXPECT_THAT(gone.lines, ::testing::IsEmpty());
}

TEST(ArrayKindsTest, AnotherTypeReachesLanesThatComeLater) {
  auto array = nets(2);
  array.lane(0)->forward(torch::randn({4, 5})).sum().backward();
  array.to(torch::kDouble);
  EXPECT_EQ(array.lane_parameters(0)[0].grad().scalar_type(), torch::kDouble);
  array.lane(0)->forward(torch::randn({4, 5}, torch::kDouble)).sum().backward();
  array.append({7});
  EXPECT_TRUE(same_bits(array.lane_parameters(2)[0], solo(7)->named_parameters()["scale"].to(torch::kDouble)));
  EXPECT_EQ(array.lane(1, hfta::lanes::copy)->named_parameters()["scale"].scalar_type(), torch::kDouble);
  EXPECT_EQ(array.lane(1)->named_buffers()["norm.num_batches_tracked"].scalar_type(), torch::kLong);
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.to(torch::kLong); }), "lanes::Array: expected a floating type, got Long");
}

TEST(ArrayKindsTest, GradientsFollowTheirLanes) {
  auto array = nets(3);
  const auto x = torch::randn({4, 5});
  for (std::int64_t lane = 0; lane < 3; ++lane) array.lane(lane)->forward(x).square().sum().backward();
  const auto third = array.lane_parameters(2)[0].grad().clone(), first = array.lane_parameters(0)[0].grad().clone();
  array.keep({2, 0});
  EXPECT_TRUE(same_bits(array.lane_parameters(0)[0].grad(), third));
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.grad()[1], first));
  array.copy_lane(0, 1);
  EXPECT_TRUE(same_bits(array.lane_parameters(1)[0].grad(), third));
}

TEST(ArrayKindsTest, GradientsAreClearedFromEitherSide) {
  auto array = nets(2);
  const auto x = torch::randn({4, 5});
  const auto backward = [&](std::int64_t lane) { array.lane(lane)->forward(x).square().sum().backward(); };
  backward(0), backward(1);
  array.stack_gradients();
  array.lane(0)->zero_grad();
  array.stack_gradients();
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.grad()[0], torch::zeros({5})));
  array.lane(1)->zero_grad();
  array.stack_gradients();
  EXPECT_FALSE(array.parameters()[0].tensor.grad().defined());
  backward(0);
  array.stack_gradients();
  for (const auto& p : array.parameters()) p.tensor.mutable_grad().reset();
  array.stack_gradients();
  EXPECT_FALSE(array.lane_parameters(0)[0].grad().defined());
}

TEST(ArrayKindsTest, MovesToTheTestDevice) {
  auto array = nets(2);
  array.to(device());
  EXPECT_EQ(array.device().type(), device().type());
  EXPECT_EQ(array.lane_parameters(1)[0].device(), array.device());
  EXPECT_EQ(array.generator(1).device(), array.device());
  array.append({5});
  EXPECT_EQ(array.lane_parameters(2)[0].device(), array.device());
  EXPECT_TRUE(same_bits(array.lane_parameters(2)[0].cpu(), solo(5)->named_parameters()["scale"]));
  EXPECT_EQ(error_of<InvalidArgument>([&] { array.to(torch::kMeta); }), "lanes::Array: expected a device with memory, got meta");
  if (!torch::cuda::is_available()) {
    EXPECT_EQ(error_of<Unsupported>([&] { array.to(torch::kCUDA); }), "lanes::Array: expected a device that is there, got cuda");
  }
}

TEST(ArrayKindsTest, HandlesOutliveTheArray) {
  std::optional<hfta::lanes::Lane<Net>> handle;
  {
    auto array = nets(2);
    handle = array.lane(1);
    const Net converted(array.lane(0));
    EXPECT_EQ(converted.ptr(), array.lane(0).net().ptr());
  }
  EXPECT_TRUE(same_bits((*handle)->named_parameters()["scale"], solo(1)->named_parameters()["scale"]));
}

TEST(ArrayKindsTest, ADroppedLanesHandleSaysSo) {
  auto array = nets(3);
  auto handle = array.lane(1);
  array.append({4});
  handle->parameters();
  array.keep({0, 2});
  EXPECT_EQ(error_of<InvalidArgument>([&] { const Net net = handle; }), "lanes::Lane: expected a handle taken since the lanes moved, got one of lane 1, which was dropped");
}

TEST(ArrayKindsTest, PlainSharedPointersServeAsWell) {
  hfta::Array<std::shared_ptr<NetImpl>> array(2, [](std::int64_t) { return std::make_shared<NetImpl>(); });
  const std::shared_ptr<NetImpl> net = array.lane(1);
  EXPECT_TRUE(same_bits(net->named_parameters()["scale"], solo(1)->named_parameters()["scale"]));
  array.lane(1)->forward(torch::randn({2, 5}));
}

}  // namespace array_kinds_test
