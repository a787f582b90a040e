#include "hfta/program/overloads.h"

#include <gtest/gtest.h>

namespace overloads_test {

using hfta::program::functional_twin;
using hfta::program::out_overload;
using hfta::program::overloads;

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::string out_of(const char* name, const char* overload = "") {
  const auto found = out_overload(op(name, overload), c10::DispatchKey::CPU);
  return found ? c10::toString(found->op.operator_name()) : "none";
}

TEST(OverloadsTest, AllOfANameAreFoundAlsoThoseRegisteredLater) {
  EXPECT_GE(overloads("aten::add").size(), 3U);
  EXPECT_TRUE(overloads("overloads_test::twice").empty());
  torch::Library library(torch::Library::FRAGMENT, "overloads_test", std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor x) -> Tensor");
  EXPECT_EQ(overloads("overloads_test::twice").size(), 1U);
}

// Most generated `out` overloads only call the functional operator and copy.
TEST(OverloadsTest, OutIsUsedWhereItHasAKernelOfItsOwn) {
  EXPECT_EQ(out_of("aten::sum", "dim_IntList"), "aten::sum.IntList_out");
  EXPECT_EQ(out_of("aten::threshold_backward"), "aten::threshold_backward.grad_input");
  EXPECT_EQ(out_of("aten::nll_loss_forward"), "aten::nll_loss_forward.output");
  EXPECT_EQ(out_of("aten::mm"), "aten::mm.out");
  for (const char* name : {"aten::convolution", "aten::relu", "aten::native_layer_norm", "aten::embedding", "aten::clone", "aten::_to_copy",
                           "aten::mkldnn_rnn_layer"})
    EXPECT_EQ(out_of(name), "none") << name;
  EXPECT_EQ(out_of("aten::mul", "Scalar"), "none");
}

TEST(OverloadsTest, OutThatResizesItsResultIsNotUsed) {
  for (const char* name : {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy"})
    EXPECT_EQ(out_of(name), "none") << name;
}

TEST(OverloadsTest, InPlaceViewsHaveAFunctionalTwin) {
  EXPECT_EQ(c10::toString(functional_twin(op("aten::transpose_"))->operator_name()), "aten::transpose.int");
  EXPECT_EQ(c10::toString(functional_twin(op("aten::t_"))->operator_name()), "aten::t");
  EXPECT_FALSE(functional_twin(op("aten::mm")));
}

}  // namespace overloads_test
