#include "hfta/data/loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/threads.h"

namespace hfta::data {
namespace {

// Neighbouring seeds and epochs must not share an order: splitmix64's finisher spreads them.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// Batches that a thread has read and nobody has taken yet; made for one epoch.
class ReadAhead {
 public:
  ReadAhead(std::int64_t first, std::int64_t batches, std::int64_t capacity, std::function<Batch(std::int64_t)> read)
      : next_(first), batches_(batches), capacity_(capacity), read_(std::move(read)), thread_([this] { work(); }) {}

  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The next batch; the reader's error after the batches before it.
  Batch take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || error_; });
    if (ready_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  void work() noexcept {
    try {
      const base::IntraOpThreads one(1);
      const c10::NoGradGuard no_grad;
      for (; next_ < batches_; ++next_) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || static_cast<std::int64_t>(ready_.size()) < capacity_; });
        if (stopping_) return;
        lock.unlock();
        Batch batch = read_(next_);
        lock.lock();
        ready_.push_back(std::move(batch));
        lock.unlock();
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  std::int64_t next_;
  const std::int64_t batches_, capacity_;
  const std::function<Batch(std::int64_t)> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

Source::Item read_item(const Source& source, std::int64_t item) {
  try {
    auto read = source.read(item);
    HFTA_CHECK(read.input.defined() && read.target.defined(), "expected an input and a target, got an undefined tensor");
    return read;
  } catch (const std::exception& e) {
    throw Error(base::message("data::Loader: expected to read item ", item, ", got: ", e.what()));
  } catch (...) {
    throw Error(base::message("data::Loader: expected to read item ", item, ", got an unknown error"));
  }
}

Batch read_items(const Source& source, const at::Tensor& items) {
  const auto order = items.contiguous();
  std::vector<at::Tensor> inputs, targets;
  for (std::int64_t i = 0; i < order.numel(); ++i) {
    const auto item = order.const_data_ptr<std::int64_t>()[i];
    auto [input, target] = read_item(source, item);
    HFTA_CHECK(inputs.empty() || (input.sizes() == inputs[0].sizes() && target.sizes() == targets[0].sizes()),
               "data::Loader: expected items of one shape, got ", input.sizes(), " and target ", target.sizes(), " as item ", item);
    inputs.push_back(std::move(input));
    targets.push_back(std::move(target));
  }
  return {at::stack(inputs), at::stack(targets)};
}

}  // namespace

at::Tensor epoch_order(std::int64_t items, std::uint64_t seed, std::int64_t epoch) {
  return at::randperm(items, base::seeded_generator(mixed(seed ^ mixed(static_cast<std::uint64_t>(epoch)))), at::kLong);
}

struct Loader::State {
  LoaderOptions options;
  std::int64_t items = 0;
  std::function<Batch(const at::Tensor& items)> read;
  Position position;
  bool restored = true;  // the next epoch starts at `position` as it is
  bool inside = false;   // an epoch was begun and has not ended
  at::Tensor order;      // `[items]`, or `[lanes, items]`
  std::unique_ptr<ReadAhead> ahead;

  State(std::int64_t count, LoaderOptions given, std::function<Batch(const at::Tensor&)> reader)
      : options(std::move(given)), items(count), read(std::move(reader)) {
    HFTA_CHECK(items >= 1, "data::Loader: expected at least one item, got ", items);
    HFTA_CHECK(options.batch_size >= 1, "data::Loader: expected a batch size of at least 1, got ", options.batch_size);
    HFTA_CHECK(options.prefetch >= 0, "data::Loader: expected to prefetch at least 0 batches, got ", options.prefetch);
    HFTA_CHECK(!options.drop_last || items >= options.batch_size, "data::Loader: expected at least one full batch of ", options.batch_size,
               ", got ", items, " items");
  }

  std::int64_t batches() const { return (items + (options.drop_last ? 0 : options.batch_size - 1)) / options.batch_size; }

  at::Tensor order_of(std::int64_t epoch) const {
    const auto one = [&](std::uint64_t seed) { return options.shuffle ? epoch_order(items, seed, epoch) : at::arange(items, at::kLong); };
    if (options.lane_seeds.empty()) return one(options.seed);
    std::vector<at::Tensor> lanes;
    for (const auto seed : options.lane_seeds) lanes.push_back(one(seed));
    return at::stack(lanes);
  }

  Batch read_batch(std::int64_t index) const {
    const auto first = index * options.batch_size;
    const auto wanted = order.slice(-1, first, std::min(items, first + options.batch_size));
    Batch batch = read(wanted.reshape({-1}));
    batch.index = index;
    batch.per_lane = wanted.dim() == 2;
    if (batch.per_lane) {
      batch.data = batch.data.unflatten(0, wanted.sizes());
      batch.target = batch.target.unflatten(0, wanted.sizes());
    }
    batch.data = batch.data.to(options.device);
    batch.target = batch.target.to(options.device);
    return batch;
  }
};

Loader::Loader(Dataset dataset, LoaderOptions options) {
  check(dataset, "the loader's dataset");
  const auto count = dataset.size();
  state_ = std::make_unique<State>(count, std::move(options), [dataset = std::move(dataset)](const at::Tensor& items) -> Batch {
    const auto here = items.to(dataset.inputs.device());
    return {dataset.inputs.index_select(0, here), dataset.targets.index_select(0, here)};
  });
}

Loader::Loader(Source source, LoaderOptions options) {
  HFTA_CHECK(source.read, "data::Loader: expected a source that reads items, got none");
  const auto count = source.size;
  state_ = std::make_unique<State>(count, std::move(options),
                                   [source = std::move(source)](const at::Tensor& items) { return read_items(source, items); });
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

std::int64_t Loader::items() const { return state_->items; }
std::int64_t Loader::batches() const { return state_->batches(); }
const LoaderOptions& Loader::options() const { return state_->options; }

Position Loader::position() const {
  const auto at = state_->position;
  return at.batch == batches() ? Position{at.epoch + 1, 0} : at;
}

void Loader::restore(Position position) {
  HFTA_CHECK(position.epoch >= 0 && position.batch >= 0 && position.batch < batches(), "data::Loader: expected a batch in [0, ", batches(),
             ") of an epoch of at least 0, got batch ", position.batch, " of epoch ", position.epoch);
  state_->ahead.reset();
  state_->inside = false;
  state_->position = position;
  state_->restored = true;
}

void Loader::begin_epoch() {
  auto& state = *state_;
  state.ahead.reset();
  if (!state.restored && state.inside) state.position = {state.position.epoch + 1, 0};
  state.restored = false;
  state.inside = true;
  state.order = state.order_of(state.position.epoch);
  if (state.options.prefetch > 0)
    state.ahead = std::make_unique<ReadAhead>(state.position.batch, batches(), state.options.prefetch,
                                              [&state](std::int64_t i) { return state.read_batch(i); });
}

std::optional<Batch> Loader::next() {
  auto& state = *state_;
  if (!state.inside) return std::nullopt;
  if (state.position.batch == batches()) {
    state.inside = false;
    state.position = {state.position.epoch + 1, 0};
    state.ahead.reset();
    return std::nullopt;
  }
  Batch batch = state.ahead ? state.ahead->take() : state.read_batch(state.position.batch);
  ++state.position.batch;
  return batch;
}

Loader::Iterator& Loader::Iterator::operator++() {
  batch_ = loader_->next();
  return *this;
}

Loader::Iterator Loader::begin() {
  begin_epoch();
  return Iterator(*this);
}

}  // namespace hfta::data
