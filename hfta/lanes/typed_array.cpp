#include "hfta/lanes/typed_array.h"

#include "hfta/lanes/array_state.h"

namespace hfta::lanes {

LanePlace::LanePlace(const ArrayBase& array, std::int64_t lane) : roster_(array.state_->roster), module_(array.module(lane)), lane_(lane) {}

void LanePlace::check() const {
  const auto roster = roster_.lock();
  const auto module = module_.lock();
  if (roster == nullptr || module == nullptr) return;
  const auto& modules = roster->modules;
  const auto lanes = static_cast<std::int64_t>(modules.size());
  if (lane_ < lanes && modules[lane_] == module) return;
  const auto now = std::find(modules.begin(), modules.end(), module) - modules.begin();
  HFTA_CHECK(false, "lanes::Lane: expected a handle taken since the lanes moved, got one of lane ", lane_, ", which ",
             now < lanes ? base::message("is lane ", now, " now") : std::string("was dropped"));
}

}  // namespace hfta::lanes
