#pragma once

#include <cstdint>
#include <functional>

namespace hfta::train {

/// Most bytes that this thread had allocated from LibTorch's CPU allocator at once while the action ran, beyond those live before.
std::int64_t peak_bytes_during(const std::function<void()>& action);

}  // namespace hfta::train
