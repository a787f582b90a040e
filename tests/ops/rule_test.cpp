#include "hfta/ops/rule.h"

#include "tests/support.h"

namespace hfta::ops {
namespace {

TEST(RuleTest, AnOperatorWithoutRulesHasNone) { EXPECT_EQ(find_rules({"aten::no_such_operator", ""}), nullptr); }

}  // namespace
}  // namespace hfta::ops
