#include "hfta/base/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace hfta::base {
namespace {

std::recursive_mutex& default_generator_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

}  // namespace

at::Generator seeded_generator(std::uint64_t seed, c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator = at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state_of(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

DefaultGeneratorScope::DefaultGeneratorScope(at::Generator generator)
    : lock_(default_generator_mutex()), generator_(std::move(generator)) {
  auto shared = default_generator();
  before_ = state_of(shared);
  if (generator_.device().is_cpu()) set_state_of(shared, state_of(generator_));
}

DefaultGeneratorScope::~DefaultGeneratorScope() {
  auto shared = default_generator();
  if (generator_.device().is_cpu()) set_state_of(generator_, state_of(shared));
  set_state_of(shared, before_);
}

at::Generator DefaultGeneratorScope::generator() const { return generator_.device().is_cpu() ? default_generator() : generator_; }

}  // namespace hfta::base
