// What an array needs, by a counter of allocations: the state of all lanes, and 1.2 times one model's activations for each lane at work.
#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <unordered_map>

#include "hfta/hfta.h"
#include "tests/support.h"

namespace memory_test {

using at::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// LibTorch's CPU allocator, counting what is alive on all threads. In place from its first use to the end of the process.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* counter = [] {
      auto* made = new CountingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made, /*priority=*/1);
      return made;
    }();
    return *counter;
  }
  c10::DataPtr allocate(size_t bytes) override {
    auto inner = base_->allocate(bytes);
    const auto device = inner.device();
    void* data = inner.release_context();  // the base's context is the data, as `raw_allocate` wants it
    const std::lock_guard lock(mutex_);
    if (data) bytes_[data] = static_cast<std::int64_t>(bytes), live_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  std::int64_t live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  /// The most that is alive during the action.
  std::int64_t peak_of(const std::function<void()>& action) {
    {
      const std::lock_guard lock(mutex_);
      peak_ = live_;
    }
    action();
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}
  static void release(void* data) {
    if (!data) return;
    auto& self = instance();
    {
      const std::lock_guard lock(self.mutex_);
      const auto place = self.bytes_.find(data);
      self.live_ -= place->second;
      self.bytes_.erase(place);
    }
    self.base_->raw_deleter()(data);
  }
  c10::Allocator* base_;
  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> bytes_;
  std::int64_t live_ = 0, peak_ = 0;
};

struct ConvolutionsImpl : nn::Module {
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)))}, two{register_module("two", nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)))};
  nn::BatchNorm2d first{register_module("first", nn::BatchNorm2d(8))}, second{register_module("second", nn::BatchNorm2d(16))};
  nn::Linear head{register_module("head", nn::Linear(16 * 4 * 4, 5))};
  Tensor forward(const Tensor& x) {
    auto y = torch::max_pool2d(torch::relu(first(one(x.view({-1, 1, 16, 16})))), 2);
    y = torch::max_pool2d(torch::relu(second(two(y))), 2);
    return head(torch::dropout(y.flatten(1), 0.3, is_training()));
  }
};
TORCH_MODULE(Convolutions);

struct LayersImpl : nn::Module {
  nn::Sequential layers{register_module("layers", nn::Sequential(nn::Linear(256, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 5)))};
  Tensor forward(const Tensor& x) { return layers->forward(x); }
};
TORCH_MODULE(Layers);

struct Way {
  std::int64_t width, workers;
};
class MemoryTest : public ::testing::TestWithParam<Way> {};

template <typename Net>
Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) { return F::cross_entropy(net->forward(x), y); }

/// Peak of a plain step of one model beyond its state and that of its optimizer.
template <typename Net>
std::int64_t activations_of_one(const Tensor& x, const Tensor& y) {
  const hfta::base::IntraOpThreads threads(1);
  Net net;
  torch::optim::Adam adam(net->parameters());
  const auto step = [&] {
    loss_of(net, x, y).backward();
    adam.step();
    adam.zero_grad();
  };
  step();
  auto& counter = CountingAllocator::instance();
  const auto before = counter.live();
  return counter.peak_of(step) - before;
}

std::int64_t state_of_all(const hfta::lanes::ArrayBase& array) {
  std::int64_t bytes = 0;
  for (const auto& parameter : array.parameters()) bytes += 3 * static_cast<std::int64_t>(parameter.tensor.storage().nbytes());  // and Adam's two moments
  for (const auto& buffer : array.buffers()) bytes += static_cast<std::int64_t>(buffer.tensor.storage().nbytes());
  return bytes;
}

template <typename Net>
void expect_criterion(std::int64_t batch) {
  constexpr std::int64_t kLanes = 6;
  const auto [width, workers] = MemoryTest::GetParam();
  auto& counter = CountingAllocator::instance();
  const auto x = torch::randn({batch, 256}), y = torch::randint(5, {batch});
  const auto one = activations_of_one<Net>(x, y);
  const auto before = counter.live();
  hfta::Array<Net> array(kLanes, [](std::int64_t) { return Net(); });
  hfta::optim::Adam adam(array, {.lr = 1e-3});
  auto step = hfta::record(array, adam, loss_of<Net>, {}, {.width = width, .workers = workers, .measures_lowerings = false});
  for (int i = 0; i < 3; ++i) step(x + i, y);
  const auto peak = counter.peak_of([&] { step(x, y), step(x, y); }) - before;
  const auto allowed = state_of_all(array) + width * workers * one * 12 / 10;
  EXPECT_LE(peak, allowed) << "state " << state_of_all(array) << ", one model's activations " << one << '\n' << step->report();
}

TEST_P(MemoryTest, LayersKeepTheCriterion) { expect_criterion<Layers>(64); }
TEST_P(MemoryTest, ConvolutionsKeepTheCriterion) { expect_criterion<Convolutions>(16); }

INSTANTIATE_TEST_SUITE_P(Ways, MemoryTest, ::testing::Values(Way{1, 1}, Way{1, 2}, Way{3, 1}, Way{3, 2}, Way{6, 1}), [](const auto& info) {
  return "Width" + std::to_string(info.param.width) + "Workers" + std::to_string(info.param.workers);
});

}  // namespace memory_test
