#include "hfta/cli/make_optimizer.h"

#include "hfta/base/error.h"
#include "hfta/optim/adadelta.h"
#include "hfta/optim/adam.h"
#include "hfta/optim/schedule.h"
#include "hfta/optim/sgd.h"

namespace hfta::cli {
namespace {

bool is_nesterov(const LaneSetup& setup) {
  const auto found = setup.hypers.find("nesterov");
  return found != setup.hypers.end() && found->second != 0;
}

/// The lanes' values of a hyper-parameter, `otherwise` where a lane was not given one.
std::vector<double> values_of(const std::vector<LaneSetup>& setups, const std::string& name, double otherwise) {
  std::vector<double> values;
  for (const auto& setup : setups) {
    const auto found = setup.hypers.find(name);
    values.push_back(found == setup.hypers.end() ? otherwise : found->second);
  }
  return values;
}

std::unique_ptr<optim::Optimizer> default_optimizer(lanes::ArrayBase& array, const std::vector<LaneSetup>& setups) {
  const auto& name = setups.front().optimizer;
  if (name == "adam") return std::make_unique<optim::Adam>(array);
  if (name == "adamw") return std::make_unique<optim::AdamW>(array);
  if (name == "adadelta") return std::make_unique<optim::Adadelta>(array);
  HFTA_CHECK(name == "sgd", "cli::make_optimizer: expected a known optimizer, got '", name, "'");
  optim::SGDOptions options;
  options.nesterov = is_nesterov(setups.front());
  // Nesterov's form has rules about momentum that are checked as it is made.
  options.momentum = optim::PerLane(values_of(setups, "momentum", 0));
  options.dampening = optim::PerLane(values_of(setups, "dampening", 0));
  return std::make_unique<optim::SGD>(array, options);
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(lanes::ArrayBase& array, const std::vector<LaneSetup>& setups) {
  auto optimizer = default_optimizer(array, setups);
  for (const auto& name : optimizer->hyper_names()) optimizer->set(name, optim::PerLane(values_of(setups, name, optimizer->get(name, 0))));
  return optimizer;
}

std::shared_ptr<optim::Schedule> make_schedule(optim::Optimizer& optimizer, const ScheduleSection& section, std::int64_t epochs) {
  std::vector<optim::SchedulePart> parts;
  std::vector<optim::PerLane> milestones;
  if (section.warmup > 0) parts.push_back(optim::LinearLR{.start_factor = 1.0 / static_cast<double>(section.warmup + 1), .end_factor = 1, .total_iters = static_cast<double>(section.warmup)});
  if (section.name == "step") parts.push_back(optim::StepLR{.step_size = static_cast<double>(section.every), .gamma = section.gamma});
  if (section.name == "cosine") {
    const auto lanes = optimizer.array().lanes();
    std::vector<double> least;
    for (std::int64_t lane = 0; lane < lanes; ++lane) least.push_back(section.least * optimizer.get("lr", lane));
    parts.push_back(optim::CosineAnnealingLR{.t_max = static_cast<double>(epochs - section.warmup), .eta_min = least});
  }
  if (parts.empty()) return nullptr;
  if (parts.size() > 1) milestones.emplace_back(static_cast<double>(section.warmup));
  return std::make_shared<optim::Schedule>(optimizer, parts, milestones);
}

}  // namespace hfta::cli
