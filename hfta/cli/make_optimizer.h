#pragma once

#include <memory>
#include <vector>

#include "hfta/cli/trial_maker.h"
#include "hfta/optim/schedule.h"

namespace hfta::cli {

/// The optimizer of an array whose lanes have these hyper-parameters; what a lane was not given is the class's default.
std::unique_ptr<optim::Optimizer> make_optimizer(lanes::ArrayBase& array, const std::vector<LaneSetup>& setups);

/// The learning rates' schedule by epoch; null for constant rates. The optimizer outlives it.
std::shared_ptr<optim::Schedule> make_schedule(optim::Optimizer& optimizer, const ScheduleSection& section, std::int64_t epochs);

}  // namespace hfta::cli
