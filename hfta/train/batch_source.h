#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "hfta/data/loader.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// A step's inputs and how many items they hold (the weight of their loss and metrics in an epoch's mean).
struct TrainBatch {
  std::vector<Input> inputs;
  std::int64_t items = 1;
};

/// Where a trainer's batches come from. Per-lane inputs have a row for every lane that the array began with.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Begins this epoch at its first batch, also again. The batches depend on nothing but the source and the epoch's number.
  virtual void begin_epoch(std::int64_t epoch) = 0;
  /// The epoch's next batch; nothing at its end.
  virtual std::optional<TrainBatch> next() = 0;
  /// Batches of an epoch, where that is known.
  virtual std::optional<std::int64_t> batches() const { return std::nullopt; }
};

/// Batches of a loader: inputs are its data and target.
class LoaderSource final : public BatchSource {
 public:
  explicit LoaderSource(data::Loader& loader) : loader_(loader) {}
  void begin_epoch(std::int64_t epoch) override;
  std::optional<TrainBatch> next() override;
  std::optional<std::int64_t> batches() const override { return loader_.batches(); }

 private:
  data::Loader& loader_;
};

/// Batches that a function makes by epoch and index; an epoch ends at its first empty answer.
class FunctionSource final : public BatchSource {
 public:
  using Make = std::function<std::optional<TrainBatch>(std::int64_t epoch, std::int64_t index)>;
  explicit FunctionSource(Make make) : make_(std::move(make)) {}
  void begin_epoch(std::int64_t epoch) override { epoch_ = epoch, index_ = 0; }
  std::optional<TrainBatch> next() override { return make_(epoch_, index_++); }

 private:
  Make make_;
  std::int64_t epoch_ = 0, index_ = 0;
};

}  // namespace hfta::train
