#include "hfta/train/runner.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/base/generator.h"
#include "hfta/base/log.h"
#include "hfta/base/threads.h"
#include "hfta/train/memory_probe.h"
#include "hfta/train/plain_step.h"
#include "hfta/train/recorded_step.h"
#include "hfta/train/snapshot.h"

namespace hfta::train {
namespace {

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::int64_t bytes_of(const std::vector<lanes::Stacked>& stacks, bool trainable_only = false) {
  std::int64_t bytes = 0;
  for (const auto& stack : stacks)
    if (!trainable_only || stack.trainable) bytes += stack.stored_bytes() / stack.tensor.size(0);
  return bytes;
}

std::int64_t bytes_of(const c10::IValue& state) {
  std::int64_t bytes = 0;
  state.visit([&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) bytes += static_cast<std::int64_t>(value.toTensor().nbytes());
    return false;
  });
  return bytes;
}

}  // namespace

struct Runner::State {
  std::vector<lanes::ArrayBase*> arrays;
  optim::Optimizer& optimizer;
  LaneStep step;
  StepOptions options;
  plan::Plan plan;
  PlainStep plain;
  std::optional<RecordedStep> recorded{};
  std::string refusal{};
  std::string choice{};  // How the plan was chosen, for the report.

  State(std::vector<lanes::ArrayBase*> of, optim::Optimizer& by, LaneStep with, StepOptions how, plan::Plan first)
      : arrays(std::move(of)), optimizer(by), step(std::move(with)), options(std::move(how)), plan(std::move(first)),
        plain(arrays, optimizer, step, options, plan) {}

  std::int64_t lanes() const { return arrays[0]->lanes(); }

  // Throws the reason where recording is refused, also the next time, without trying again.
  void run_recorded(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update) {
    if (!refusal.empty()) throw Unsupported(refusal);
    const auto fit = plan::fitted(plan, lanes());
    if (!recorded) recorded.emplace(arrays, optimizer, step, options, fit);
    else if (asked != fit) recorded->set_plan(fit);
    asked = fit;
    try {
      recorded->run(batches, outputs, after_update);
    } catch (const Unsupported& error) {
      refusal = error.what();
      throw;
    }
  }

  StepOutput run_plain(std::span<const Input> inputs) {
    if (plain.plan() != plan) plain.set_plan(plan);
    return plain(inputs);
  }

  plan::Plan asked{};  // What the recorded step was last told; its own plan has the lowerings that it chose.

  void run_plain(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update) {
    for (const auto& batch : batches) {
      outputs.push_back(run_plain(batch));
      if (after_update && plain.pending() == 0) after_update();
    }
  }

  // What a plan is chosen for. Where recording is refused nothing is known, and the candidates tell why.
  plan::Subject subject(std::span<const Input> inputs, const plan::SearchSpace& space, const std::function<void(const plan::Plan&)>& take) {
    if (!space.recorded || !refusal.empty()) return {};
    plan::Subject found;
    try {
      if (!recorded) recorded.emplace(arrays, optimizer, step, options, plan::fitted(plan, lanes()));
      found = recorded->subject(inputs);
    } catch (const std::exception&) {
      return {};
    }
    found.complete = [this, inputs, take](const plan::Plan& chosen) {
      take(chosen);
      if (!chosen.recorded) return chosen;
      const std::vector<Batch> batches(static_cast<std::size_t>(options.accumulate), Batch(inputs.begin(), inputs.end()));
      std::vector<StepOutput> outputs;
      run_recorded(batches, outputs, {});
      return recorded->plan();
    };
    return found;
  }

  // As many calls as end with an update.
  void whole_update(const std::function<void()>& call) const {
    for (std::int64_t i = 0; i < options.accumulate; ++i) call();
  }

  // The middle time of a step in a few calls by the present plan, after one more to warm up. Steps are made together as in a run, where
  // the caller makes `most` in a call.
  double measure(std::span<const Input> inputs, std::int64_t most) {
    std::vector<StepOutput> outputs;
    const auto call = [&](std::int64_t updates) {
      const std::vector<Batch> batches(static_cast<std::size_t>(updates * options.accumulate), Batch(inputs.begin(), inputs.end()));
      const double before = now_ms();
      outputs.clear();
      plan.recorded ? run_recorded(batches, outputs, {}) : run_plain(batches, outputs, {});
      return (now_ms() - before) / static_cast<double>(batches.size());
    };
    call(1);
    const auto one = call(1);
    const auto together = std::min(most, steps_together(one));
    const auto measure = [&] { return call(std::max<std::int64_t>(together / options.accumulate, 1)); };
    return together > 1 ? plan::middle_ms(measure) : plan::middle_ms(measure, {one});
  }
};

Runner::Runner(std::vector<lanes::ArrayBase*> arrays, optim::Optimizer& optimizer, LaneStep step, StepOptions options, plan::Plan plan)
    : state_(std::make_unique<State>(std::move(arrays), optimizer, std::move(step), std::move(options), std::move(plan))) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;
Runner& Runner::operator=(Runner&&) noexcept = default;

StepOutput Runner::operator()(std::span<const Input> inputs) {
  const Batch batch(inputs.begin(), inputs.end());
  std::vector<StepOutput> outputs;
  run({&batch, 1}, outputs);
  return std::move(outputs[0]);
}

void Runner::run(std::span<const Batch> batches, std::vector<StepOutput>& outputs, const std::function<void()>& after_update) {
  auto& s = *state_;
  outputs.clear();
  if (s.plan.recorded && s.refusal.empty()) {
    try {
      return s.run_recorded(batches, outputs, after_update);
    } catch (const Unsupported& error) {
      base::log_once(base::LogLevel::Warning, std::string("plain steps instead of recorded ones: ") + error.what());
      s.plain.take_over(s.recorded->pending());
    }
  }
  s.run_plain(batches.subspan(outputs.size()), outputs, after_update);
}

plan::Plan Runner::plan() const {
  const auto& s = *state_;
  auto plan = plan::fitted(s.plan, s.lanes());
  if (s.plan.recorded && s.refusal.empty() && s.recorded && s.asked == plan) return s.recorded->plan();
  if (!s.refusal.empty()) plan.recorded = false;
  return plan;
}

void Runner::set_plan(const plan::Plan& plan) {
  state_->plan = plan;
  state_->choice.clear();
}

std::string Runner::report() const {
  const auto& s = *state_;
  if (!s.refusal.empty()) return "plain steps: " + s.refusal;
  if (!s.plan.recorded) return "plain steps, as the plan says" + (s.choice.empty() ? "" : '\n' + s.choice);
  return (s.recorded ? s.recorded->report() : "nothing recorded yet\n") + s.choice;
}

plan::SearchResult Runner::choose_plan(std::span<const Input> inputs, plan::SearchSpace space, const plan::SearchOptions& options) {
  auto& s = *state_;
  const auto pending = s.plain.pending() + (s.recorded ? s.recorded->pending() : 0);
  HFTA_CHECK(pending == 0, "train::Runner: expected no accumulated gradients when a plan is chosen, got those of ", pending, " calls");
  space.lanes = s.lanes();
  if (space.memory_limit_bytes > 0 && !space.memory) space.memory = memory_profile(inputs);
  const auto before = s.plan;
  plan::SearchResult result;
  try {
    const Undisturbed undisturbed(s.arrays, s.optimizer);
    const auto run = [&](const plan::Plan& candidate) {
      undisturbed.restore_now();
      s.plan = candidate;
    };
    result = plan::choose(space, s.subject(inputs, space, run), [&](const plan::Plan& candidate) {
      run(candidate);
      return s.measure(inputs, space.steps);
    }, options);
  } catch (...) {
    s.plan = before;
    throw;
  }
  s.plan = result.plan;
  s.choice = "plan: " + result.explanation + '\n' + plan::table(result);
  return result;
}

plan::Throughput Runner::throughput(std::span<const Input> inputs, const plan::ThroughputOptions& options) {
  auto& s = *state_;
  const Undisturbed undisturbed(s.arrays, s.optimizer);
  const auto cores = static_cast<int>(base::cores());
  std::vector<std::unique_ptr<PlainStep>> alone;
  std::vector<std::pair<std::string, std::function<void(std::int64_t)>>> ways;  // each makes so many updates
  for (const int threads : {1, cores}) {
    if (threads == 1 && !alone.empty()) continue;
    alone.push_back(std::make_unique<PlainStep>(s.arrays, s.optimizer, s.step, s.options, plan::Plan{.intra_op_threads = threads, .recorded = false}));
    const auto name = "alone, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    ways.emplace_back(name, [&s, &step = *alone.back(), inputs](std::int64_t updates) {
      for (std::int64_t i = 0; i < updates * s.options.accumulate; ++i) step(inputs);
    });
  }
  ways.emplace_back("array", [&](std::int64_t updates) {
    std::vector<StepOutput> outputs;
    run(std::vector<Batch>(static_cast<std::size_t>(updates * s.options.accumulate), Batch(inputs.begin(), inputs.end())), outputs);
  });
  // As long as this at least: the threads of one way are still awake for a moment where the next begins.
  constexpr double kRepeatMs = 50, kMostUpdates = 64;
  std::vector<double> updates;
  std::vector<plan::Variant> variants;
  for (const auto& [name, make] : ways) {
    make(1);
    const auto before = now_ms();
    make(1);
    updates.push_back(std::clamp(std::ceil(kRepeatMs / (now_ms() - before)), 1.0, kMostUpdates));
    variants.push_back({name, [&make = make, count = static_cast<std::int64_t>(updates.back())] { make(count); }});
  }
  auto times = plan::compare(variants, options);
  for (std::size_t i = 0; i < updates.size(); ++i)
    for (auto& ms : times.variants[i].ms) ms /= updates[i];
  return times;
}

plan::MemoryProfile Runner::memory_profile(std::span<const Input> inputs) {
  auto& s = *state_;
  plan::MemoryProfile profile{.lanes = s.lanes()};
  const Undisturbed undisturbed(s.arrays, s.optimizer);
  const auto first = inputs_of_lane(inputs, 0);
  const base::DefaultGeneratorScope random(s.arrays[0]->generator(0));
  const auto peak = peak_bytes_during([&] {
    const auto result = s.step(0, first);
    check_loss(result.loss, 0, "train::Runner");
    result.loss.backward();
  });
  s.whole_update([&] { s.plain(inputs); });
  profile.state_bytes_per_lane = bytes_of(s.optimizer.lane_state_dict(0));
  for (const auto* array : s.arrays) {
    profile.state_bytes_per_lane += bytes_of(array->parameters()) + bytes_of(array->buffers());
    profile.gradient_bytes_per_lane += bytes_of(array->parameters(), /*trainable_only=*/true);
  }
  profile.activation_bytes_per_lane = std::max<std::int64_t>(0, peak - profile.gradient_bytes_per_lane);
  return profile;
}

}  // namespace hfta::train
