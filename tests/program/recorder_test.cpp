#include "hfta/program/recorder.h"

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "tests/program/solo.h"
#include "tests/support.h"

namespace {

using at::Tensor;
using hfta::test::Solo;
namespace nn = torch::nn;

std::string refusal(const std::function<Tensor(nn::Sequential&, const Tensor&)>& loss) {
  Solo<nn::Sequential> solo{nn::Sequential(nn::Linear(3, 2)), [&](nn::Sequential& net, const std::vector<Tensor>& in) { return loss(net, in[0]); }};
  try {
    solo.record({torch::randn({5, 3})});
  } catch (const hfta::Unsupported& e) {
    EXPECT_EQ(c10::impl::TorchDispatchModeTLS::stack_len(), 0) << "an exception leaves no recorder behind";
    return e.what();
  }
  return "nothing refused";
}

TEST(RecorderTest, HostReadsAreRefusedByName) {  // rows 11 and h
  EXPECT_EQ(refusal([](auto& net, const Tensor& x) {
              const auto loss = net->forward(x).sum();
              return loss / loss.template item<double>();
            }),
            "program::Recorder: expected a step that can be recorded, got aten::_local_scalar_dense, which reads a value on the host, at node 3");
}

TEST(RecorderTest, ShapesThatDependOnDataAreRefused) {  // answer h
  EXPECT_EQ(refusal([](auto& net, const Tensor& x) { return net->forward(x.index({x.select(1, 0) > 0})).sum(); }),
            "program::Recorder: expected a step that can be recorded, got aten::index.Tensor, which has a result whose shape depends on data, at node 2");
  EXPECT_NE(refusal([](auto& net, const Tensor& x) { return net->forward(x).masked_select(x.select(1, 0).unsqueeze(1) > 0).sum(); })
                .find("aten::masked_select"),
            std::string::npos);
}

TEST(RecorderTest, ReboundMemoryIsRefused) {  // row 1
  EXPECT_NE(refusal([](auto& net, const Tensor& x) {
              auto y = x * 2;
              y.set_(x.clone());
              return net->forward(y).sum();
            }).find("gives a tensor other memory"),
            std::string::npos);
}

TEST(RecorderTest, IndexingByIntegersAndEqualOfItselfAreTaken) {
  EXPECT_EQ(refusal([](auto& net, const Tensor& x) {
              EXPECT_TRUE(torch::equal(x, x));
              return net->forward(x.index({torch::zeros({4}, torch::kLong)})).sum();
            }),
            "nothing refused");
}

TEST(RecorderTest, CapturedTensorsAreTold) {  // answers k, l: the capture rule
  const auto mask = torch::rand({5, 2});
  Solo<nn::Sequential> solo{nn::Sequential(nn::Linear(3, 2)), [&](nn::Sequential& net, const std::vector<Tensor>& in) { return (net->forward(in[0]) * mask).sum(); }};
  const auto recording = solo.record({torch::randn({5, 3})});
  ASSERT_EQ(recording.captured.size(), 1);
  EXPECT_EQ(recording.captured[0].place, "argument \"other\" of aten::mul.Tensor, node 2, Float [5, 2]");
}

TEST(RecorderTest, RecordingHoldsNoValues) {  // answer k: addresses stay unique, data does not stay
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  Solo<nn::Sequential> solo{nn::Sequential(nn::Linear(3, 2)), [&](nn::Sequential& net, const std::vector<Tensor>& in) {
                              auto x = in[0];
                              for (int i = 0; i < 200; ++i) {
                                x = x * 1.01;
                                seen.emplace_back(x.storage().getWeakStorageImpl());
                              }
                              return net->forward(x).sum();
                            }};
  torch::NoGradGuard no_grad;
  const auto x = torch::randn({5, 3});
  hfta::program::Recorder recorder({});
  recorder.run([&] { solo.loss(solo.net, {x}); });
  const auto recording = recorder.finish();
  EXPECT_GE(recording.program.memories.size(), 200U) << "each value has a memory of its own";
  std::size_t alive = 0;
  for (const auto& storage : seen) alive += storage.use_count() > 0;
  EXPECT_EQ(alive, 0U);
}

}  // namespace
