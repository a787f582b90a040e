#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hfta/data/dataset.h"

namespace hfta::data {

/// Items that are read when they are needed.
struct Source {
  struct Item {
    at::Tensor input, target;
  };
  std::int64_t size = 0;
  std::function<Item(std::int64_t item)> read;  ///< Runs on the loader's reader thread; may throw.
};

/// Some items of an epoch.
struct Batch {
  at::Tensor data;  ///< `[items, ...]`, shared by all lanes; `[lanes, items, ...]` where each lane has its own order.
  at::Tensor target;
  std::int64_t index = 0;  ///< 0 for the first batch of the epoch.
  bool per_lane = false;   ///< There is a leading lane axis.
};

/// The next batch that a loader gives: what a checkpoint keeps of it.
struct Position {
  std::int64_t epoch = 0, batch = 0;
  bool operator==(const Position&) const = default;
};

struct LoaderOptions {
  std::int64_t batch_size = 32;
  std::uint64_t seed = 0;  ///< Of the order; with the epoch's number it is all that the order depends on.
  bool shuffle = true;
  bool drop_last = false;                   ///< Leaves out a last batch that is not full.
  std::int64_t prefetch = 2;                ///< Batches that a thread reads ahead; 0: read when asked for.
  std::vector<std::uint64_t> lane_seeds{};  ///< One per lane: each lane goes through the items in an order of its own.
  c10::Device device = c10::kCPU;           ///< Where the batches are given.
};

/// The order of an epoch's items, int64 `[items]`, drawn from a generator of its own.
at::Tensor epoch_order(std::int64_t items, std::uint64_t seed, std::int64_t epoch);

/// Goes through a dataset in mini-batches, epoch after epoch: `for (auto& batch : loader)` is one epoch.
/// A batch is read once for all lanes. Leaving an epoch early is fine: the next one starts at its first batch.
class Loader {
 public:
  Loader(Dataset dataset, LoaderOptions options);
  Loader(Source source, LoaderOptions options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  std::int64_t items() const;
  /// Batches of an epoch.
  std::int64_t batches() const;
  const LoaderOptions& options() const;

  /// Begins the epoch that comes next, or goes on where `restore` pointed into one.
  void begin_epoch();
  /// The epoch's next batch; nothing at its end or when none was begun.
  /// @throws Error with the item's number when reading an item throws.
  std::optional<Batch> next();

  /// The batch after the last one given.
  Position position() const;
  /// The next epoch that begins is this one and starts at this batch. @throws InvalidArgument for a batch that an epoch does not have.
  void restore(Position position);

  class Iterator {
   public:
    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++();
    bool operator==(std::nullptr_t) const { return !batch_; }

   private:
    friend class Loader;
    explicit Iterator(Loader& loader) : loader_(&loader) { ++*this; }
    Loader* loader_;
    std::optional<Batch> batch_;
  };
  Iterator begin();
  std::nullptr_t end() const { return nullptr; }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hfta::data
