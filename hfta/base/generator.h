#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace hfta::base {

/// A generator of its own on the device, in the state that `torch::manual_seed(seed)` gives the default one.
at::Generator seeded_generator(std::uint64_t seed, c10::Device device = c10::kCPU);

/// The state of a generator that other threads may use, and the way back.
at::Tensor state_of(at::Generator generator);
void set_state_of(at::Generator generator, const at::Tensor& state);

/// The process has one default CPU generator; holds it for a scope in the state of `generator`, and at the end
/// moves the state reached into `generator` and puts the default one's own back. Others wait.
/// Code that draws from the default generator (building a module) so draws the lane's numbers.
class DefaultGeneratorScope {
 public:
  explicit DefaultGeneratorScope(at::Generator generator);
  ~DefaultGeneratorScope();
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

  /// What draws the lane's numbers meanwhile: the process's own generator, or on another device than the CPU `generator` itself.
  at::Generator generator() const;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace hfta::base
