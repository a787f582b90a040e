#include "hfta/program/passes.h"

#include "tests/program/solo.h"

namespace {

using at::Tensor;
using hfta::program::lay_out;
using hfta::program::Lifetime;
using hfta::test::Solo;
namespace nn = torch::nn;

TEST(LayOutTest, MemoriesAliveTogetherDoNotOverlap) {
  const std::vector<Lifetime> lives{{0, 2}, {1, 3}, {3, 5}, {2, 2}, {-1, -1}};
  const std::vector<std::int64_t> bytes{100, 64, 200, 10, 1000};
  const auto layout = lay_out(lives, bytes);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = a + 1; b < 4; ++b) {
      if (lives[a].last < lives[b].first || lives[b].last < lives[a].first) continue;
      EXPECT_TRUE(layout.offsets[a] + bytes[a] <= layout.offsets[b] || layout.offsets[b] + bytes[b] <= layout.offsets[a]) << a << " and " << b;
    }
  for (const auto offset : layout.offsets) EXPECT_EQ(offset % 64, 0);
  EXPECT_LT(layout.bytes, 128 + 64 + 256 + 64 + 1024) << "memory is used again";
}

TEST(WithoutDeadNodesTest, UnreadResultsGoAndRandomNodesStay) {
  Solo<nn::Sequential> solo{nn::Sequential(nn::Linear(3, 2)), [](nn::Sequential& net, const std::vector<Tensor>& in) {
                              const auto unread = (in[0] * 3).exp();
                              const auto drawn = torch::rand({4});
                              return net->forward(in[0]).sum();
                            }};
  const auto program = hfta::program::simplified(solo.record({torch::randn({5, 3})}).program);
  const auto text = to_string(program);
  EXPECT_EQ(text.find("aten::exp"), std::string::npos) << text;
  EXPECT_NE(text.find("aten::rand"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten::t("), std::string::npos) << "views are hoisted\n" << text;
}

}  // namespace
