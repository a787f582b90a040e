#include "hfta/train/batch_source.h"

namespace hfta::train {

void LoaderSource::begin_epoch(std::int64_t epoch) {
  loader_.restore({.epoch = epoch, .batch = 0});
  loader_.begin_epoch();
}

std::optional<TrainBatch> LoaderSource::next() {
  auto batch = loader_.next();
  if (!batch) return std::nullopt;
  const auto items = batch->target.size(batch->per_lane ? 1 : 0);
  return TrainBatch{{{std::move(batch->data), batch->per_lane}, {std::move(batch->target), batch->per_lane}}, items};
}

}  // namespace hfta::train
