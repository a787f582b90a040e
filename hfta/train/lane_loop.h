#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "hfta/base/threads.h"
#include "hfta/lanes/array.h"

namespace hfta::train {

/// Runs `task(lane)` for every lane of the arrays, spread over the workers, or over one worker per core that the calling thread
/// keeps. Each task sees the caller's grad mode, autocast and hooks; its random operators draw from its lane's generator; afterwards
/// tensors that the task rebound are back in their rows.
/// @throws the first failed lane's error: those of LibTorch and ours as one line that names the lane, a user's own as they are.
void for_each_lane(std::span<lanes::ArrayBase* const> arrays, base::Workers* workers, const std::string& who,
                   const std::function<void(std::int64_t lane)>& task);

}  // namespace hfta::train
