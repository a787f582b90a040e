#include "hfta/lanes/state.h"

#include "error_of.h"
#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/lanes/archive.h"
#include "models.h"
#include "python.h"
#include "tests/support.h"

namespace {

using namespace hfta::test;
using c10::IValue;
using hfta::InvalidArgument;
using Dict = c10::impl::GenericDict;

const std::string kPythonNet = R"(
import torch, torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop, self.second = nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.3), nn.Linear(7, 3, bias=False)
        self.scale, self.frozen = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(3), requires_grad=False)
    def forward(self, x):
        return self.second(self.drop(torch.relu(self.norm(self.first(x * self.scale))))) + self.frozen
net, x = Net(), torch.load('x.pt', weights_only=True)
)";

void train(hfta::Array<Net>& array) {
  for (std::int64_t lane = 0; lane < array.lanes(); ++lane)
    for (int i = 0; i < 3; ++i) array.lane(lane)->forward(torch::randn({6, 5}) + lane);
  array.eval();
}

TEST(StateTest, ASavedLaneLoadsStrictlyInPython) {  // case C13
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  auto array = nets(4);
  train(array);
  const auto x = torch::randn({6, 5});
  hfta::lanes::save_archive(folder / "x.pt", x);
  hfta::save_lane(array, 2, folder / "best.pt");
  ASSERT_TRUE(runs_python(folder, kPythonNet + R"(
state = torch.load('best.pt', weights_only=True)
assert list(state) == list(net.state_dict()), list(state)
net.load_state_dict(state, strict=True)
torch.save(net.eval()(x).detach(), 'y.pt')
)"));
  EXPECT_TRUE(same_bits(hfta::lanes::load_archive(folder / "y.pt").toTensor(), array.lane(2)->forward(x)));
}

TEST(StateTest, ALaneLoadsWhatPythonSaved) {  // case C13
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  auto array = nets(3);
  train(array);
  const auto x = torch::randn({6, 5});
  hfta::lanes::save_archive(folder / "x.pt", x);
  ASSERT_TRUE(runs_python(folder, kPythonNet + R"(
for i in range(3): net(torch.randn(6, 5))
torch.save(net.state_dict(), 'python.pt')
torch.save(net.eval()(x).detach(), 'y.pt')
)"));
  const auto other = array.lane(0)->forward(x);
  hfta::load_lane(array, 1, folder / "python.pt");
  EXPECT_TRUE(same_bits(array.lane(1)->forward(x), hfta::lanes::load_archive(folder / "y.pt").toTensor()));
  EXPECT_TRUE(same_bits(array.lane(0)->forward(x), other));
}

Dict state_of(hfta::lanes::ArrayBase& array) { return hfta::lanes::lane_state_dict(array, 0).toGenericDict().copy(); }

TEST(StateTest, WhatDoesNotFitIsRefusedBeforeAnyWrite) {
  auto array = nets(2);
  const auto before = array.lane(1, hfta::lanes::copy)->named_parameters();
  const auto refused = [&](const Dict& state) { return error_of<InvalidArgument>([&] { hfta::lanes::load_lane_state_dict(array, 1, state); }); };
  auto state = state_of(array);
  state.insert_or_assign("second.weight", torch::zeros({4, 7}));
  EXPECT_EQ(refused(state), "lanes::load_lane_state_dict: expected \"second.weight\" as Float [3, 7], got Float [4, 7]");
  state.insert_or_assign("second.weight", torch::zeros({3, 7}, torch::kDouble));
  EXPECT_EQ(refused(state), "lanes::load_lane_state_dict: expected \"second.weight\" as Float [3, 7], got Double [3, 7]");
  state.insert_or_assign("second.weight", 3);
  EXPECT_EQ(refused(state), "lanes::load_lane_state_dict: expected \"second.weight\" as a tensor, got Int");
  state = state_of(array);
  state.insert("head.bias", torch::zeros({3}));
  EXPECT_EQ(refused(state), "lanes::load_lane_state_dict: expected the model's tensors only, got \"head.bias\" too");
  state = state_of(array);
  ASSERT_EQ(state.erase("norm.running_var"), 1u);
  EXPECT_EQ(refused(state),
            "lanes::load_lane_state_dict: expected \"norm.running_var\", got none (there are scale, frozen, first.weight, first.bias, norm.weight, norm.bias, "
            "norm.running_mean, norm.num_batches_tracked, second.weight)");
  EXPECT_EQ(error_of<InvalidArgument>([&] { hfta::lanes::load_lane_state_dict(array, 1, 3); }), "lanes::load_lane_state_dict: expected a dict of tensors, got Int");
  EXPECT_EQ(error_of<InvalidArgument>([&] { hfta::lanes::load_lane_state_dict(array, 2, state); }), "lanes::Array: expected a lane from 0 to 1, got 2");
  for (const auto& p : before) EXPECT_TRUE(same_bits(array.lane(1)->named_parameters()[p.key()], p.value())) << p.key();
}

TEST(StateTest, AnArrayGoesOnFromItsSavedStateAsIfNeverStopped) {
  const Folder folder;
  const auto x = torch::randn({6, 5});
  auto array = nets(3);
  array.keep({2, 0});
  hfta::lanes::save_archive(folder / "array.pt", hfta::lanes::array_state(array));
  hfta::Array<Net> resumed({2, 0}, [](std::int64_t) { return Net(); });
  resumed.lane(0)->named_parameters()["scale"].data().zero_();
  torch::rand({5}, resumed.generator(1));
  hfta::lanes::load_array_state(resumed, hfta::lanes::load_archive(folder / "array.pt"));
  for (std::int64_t lane = 0; lane < 2; ++lane) {
    const auto draw = [&](hfta::Array<Net>& of) {
      const hfta::base::DefaultGeneratorScope scope(of.generator(lane));
      return of.lane(lane)->forward(x);
    };
    EXPECT_TRUE(same_bits(draw(resumed), draw(array)));
  }
  auto other = nets(2);
  EXPECT_EQ(error_of<InvalidArgument>([&] { hfta::lanes::load_array_state(other, hfta::lanes::load_archive(folder / "array.pt")); }),
            "lanes::load_array_state: expected lane 0 with seed 0, got 2");
}

TEST(StateTest, TiedTensorsStayTiedThroughTheFile) {  // case A21
  class TiedImpl : public torch::nn::Module {
   public:
    TiedImpl() { register_parameter("b", register_parameter("a", torch::randn({4, 4}))); }
  };
  using Tied = std::shared_ptr<TiedImpl>;
  const Folder folder;
  hfta::Array<Tied> array(2, [](std::int64_t) { return std::make_shared<TiedImpl>(); });
  hfta::save_lane(array, 1, folder / "tied.pt");
  hfta::load_lane(array, 0, folder / "tied.pt");
  EXPECT_TRUE(same_bits(array.parameters()[0].tensor.detach()[0], array.parameters()[0].tensor.detach()[1]));
  auto state = hfta::lanes::load_archive(folder / "tied.pt").toGenericDict();
  state.insert_or_assign("b", torch::zeros({4, 4}));
  EXPECT_EQ(error_of<InvalidArgument>([&] { hfta::lanes::load_lane_state_dict(array, 0, state); }),
            "lanes::load_lane_state_dict: expected \"b\" as the tensor it is tied to, got another");
  if (python().empty()) return;
  EXPECT_TRUE(runs_python(folder, R"(
import torch
state = torch.load('tied.pt', weights_only=True)
assert list(state) == ['a', 'b'] and state['a'].data_ptr() == state['b'].data_ptr()
)"));
}

TEST(StateTest, AnOptimizersStateGoesThereAndBack) {
  if (python().empty()) GTEST_SKIP() << "no Python with torch";
  const Folder folder;
  const std::string start = R"(
import torch
def made():
    torch.manual_seed(3)
    net = torch.nn.Linear(5, 3)
    return net, torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.8, 0.99))
net, adam = made()
def step(net, adam):
    adam.zero_grad(); net(torch.arange(10.).reshape(2, 5)).square().sum().backward(); adam.step()
step(net, adam)
)";
  ASSERT_TRUE(runs_python(folder, start + "torch.save(adam.state_dict(), 'there.pt')\n"));
  hfta::lanes::save_archive(folder / "back.pt", hfta::lanes::load_archive(folder / "there.pt"));
  EXPECT_TRUE(runs_python(folder, start + R"(
again_net, again = made()
again_net.load_state_dict(net.state_dict())
back = torch.load('back.pt', weights_only=True)
assert back['param_groups'] == adam.state_dict()['param_groups'] and type(back['param_groups'][0]['betas']) is tuple
again.load_state_dict(back)
step(net, adam); step(again_net, again)
assert torch.equal(net.weight, again_net.weight) and torch.equal(net.bias, again_net.bias)
)"));
}

}  // namespace
