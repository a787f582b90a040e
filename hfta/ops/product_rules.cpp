#include "hfta/ops/register.h"
#include "hfta/ops/rule.h"

namespace hfta::ops {

void register_product_rules() {}

}  // namespace hfta::ops
