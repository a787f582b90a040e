#include "hfta/train/group_outputs.h"

#include <ATen/ops/empty.h>

#include "hfta/base/error.h"

namespace hfta::train {

void GroupOutputs::take(std::int64_t first, std::span<const at::Tensor> results) {
  {
    const std::lock_guard lock(mutex_);
    if (all_.empty())
      for (const auto& result : results) {
        auto sizes = result.sizes().vec();
        sizes.at(0) = lanes_;
        all_.push_back(at::empty(sizes, result.options()));
      }
  }
  HFTA_CHECK(results.size() == all_.size(), "train::record: expected ", all_.size(), " results from lane ", first, " as from other lanes, got ", results.size());
  for (std::size_t k = 0; k < results.size(); ++k) {
    const auto& result = results[k];
    HFTA_CHECK(result.sizes().slice(1) == all_[k].sizes().slice(1) && result.scalar_type() == all_[k].scalar_type(), "train::record: expected result ", k, " of lane ",
               first, " as other lanes' ", all_[k].scalar_type(), ' ', all_[k].sizes().slice(1), ", got ", result.scalar_type(), ' ', result.sizes().slice(1));
    all_[k].narrow(0, first, result.size(0)).copy_(result);
  }
}

}  // namespace hfta::train
