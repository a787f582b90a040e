#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <sstream>

#include "hfta/hfta.h"
#include "hfta/train/recorded_evaluation.h"
#include "hfta/train/recorded_function.h"
#include "hfta/train/recorded_step.h"
#include "way.h"

namespace hfta::bench {
namespace {

using at::Tensor;
using nlohmann::json;
using Module = torch::nn::Module;
using Inputs = std::array<train::Input, 2>;

Inputs inputs_of(const Batches::value_type& batch) { return {train::Input{batch.first}, train::Input{batch.second}}; }

/// The least time of a few calls, after one to warm up.
double best_ms(const std::function<void()>& call, int repeats) {
  call();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = now_ms();
    call();
    best = std::min(best, now_ms() - start);
  }
  return best;
}

double timed_ms(const std::function<void()>& call) {
  const auto start = now_ms();
  call();
  return now_ms() - start;
}

/// What a test of the cost model reads.
json json_of(const plan::SearchResult& result) {
  json timings = json::array();
  for (const auto& timing : result.timings)
    if (!timing.step_ms.empty())
      timings.push_back({{"width", timing.plan.width}, {"workers", timing.plan.workers}, {"threads", timing.plan.intra_op_threads}, {"recorded", timing.plan.recorded}, {"ms", timing.best_ms()}});
  json found{{"timings", timings}};
  if (const auto& p = result.profile)
    found["profile"] = {{"lanes", p->lanes}, {"nodes", p->nodes}, {"flops", p->flops}, {"moved_bytes", p->moved_bytes}, {"made_bytes", p->made_bytes}, {"state_bytes", p->state_bytes}};
  return found;
}

/// Milliseconds of a group's nodes, those up to the loss and those after it.
struct NodeTimes {
  std::int64_t nodes = 0;
  double forward_ms = 0, backward_ms = 0;
};

/// Of the first program that a recorded step runs, the least of several profiles. All rows have a cross entropy as their loss, which tells
/// where forward ends.
NodeTimes times_of(train::RecordedStep& step, int rounds) {
  std::string word;
  NodeTimes times;
  std::istringstream(step.print()) >> word >> times.nodes;
  std::vector<std::string> lines(times.nodes);
  std::vector<double> ms(times.nodes, std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round) {
    std::istringstream text(step.print(4));
    for (std::int64_t i = 0; i < times.nodes; ++i) {
      HFTA_CHECK(std::getline(text, lines[i]), "arrays_way: expected the times of ", times.nodes, " nodes, got those of ", i);
      ms[i] = std::min(ms[i], std::stod(lines[i]));
    }
  }
  const auto loss = std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.find("cross_entropy") != std::string::npos || line.find("nll_loss") != std::string::npos; });
  HFTA_CHECK(loss != lines.end(), "arrays_way: expected a node of the loss, got none");
  for (std::int64_t i = 0; i < times.nodes; ++i) (i <= loss - lines.begin() ? times.forward_ms : times.backward_ms) += ms[i];
  return times;
}

/// What a node costs where its kernel has nothing to do: sums of single numbers, replayed.
double node_ms() {
  const auto run_ms = [](std::int64_t nodes) {
    Array<torch::nn::Linear> array(1, [](std::int64_t) { return torch::nn::Linear(1, 1); });
    train::RecordedFunction function({&array}, [&](std::int64_t lane, std::span<const Tensor> inputs) {
      const at::NoGradGuard no_grad;
      std::vector<Tensor> sums;
      for (std::int64_t i = 0; i < nodes; ++i) sums.push_back(inputs[0] + array.lane_parameters(lane)[0]);
      return sums;
    }, {});
    const std::array<train::Input, 1> input{train::Input{at::ones({1, 1})}};
    const auto run = [&] { function.run(input, [](auto, auto, auto) {}); };
    run();
    return best_ms([&] { for (int i = 0; i < 100; ++i) run(); }, 20) / 100;
  };
  return std::max(0.0, (run_ms(256) - run_ms(128)) / 128);
}

class Fused final : public Way {
 public:
  explicit Fused(const Settings& settings)
      : settings_(settings), array_(settings.lanes, [&](std::int64_t) { return settings.workload.build(); }) {
    array_.to(c10::Device(settings.device));
    if (settings.optimizer == "sgd")
      optimizer_ = std::make_unique<optim::SGD>(array_, optim::SGDOptions{.lr = kRate, .momentum = 0.9});
    else
      optimizer_ = std::make_unique<optim::Adam>(array_, optim::AdamOptions{.lr = kRate});
    step_ = [this](std::int64_t lane, std::span<const Tensor> inputs) {
      return train::StepResult{loss_of(settings_, *array_.module(lane), inputs[0], inputs[1])};
    };
    runner_ = std::make_unique<train::Runner>(arrays(), *optimizer_, step_);
    const auto& plan = settings.plan;
    if (!plan.is_object()) return;
    runner_->set_plan({.width = plan.value("width", std::int64_t{1}),
                       .workers = plan.value("workers", std::int64_t{1}),
                       .intra_op_threads = plan.value("threads", 1),
                       .recorded = plan.value("recorded", true),
                       .device = settings.device});
  }

  void steps(const Batches& batches, std::int64_t count) override {
    if (settings_.together == 1) {
      for (std::int64_t i = 0; i < count; ++i) (*runner_)(inputs_of(batches[i % batches.size()]));
      return wait_for(settings_);
    }
    std::vector<train::StepOutput> outputs;
    for (std::int64_t i = 0; i < count;) {
      std::vector<train::Batch> some;
      for (; i < count && static_cast<std::int64_t>(some.size()) < settings_.together; ++i) {
        const auto inputs = inputs_of(batches[i % batches.size()]);
        some.emplace_back(inputs.begin(), inputs.end());
      }
      runner_->run(some, outputs);
    }
    wait_for(settings_);
  }

  std::vector<Tensor> lane_parameters(std::int64_t lane) const override { return array_.lane_parameters(lane); }

  json settle(const Batches& batches) override {
    json note;
    if (!settings_.plan.is_object()) {
      plan::SearchOptions options;
      if (settings_.is_whole_search) options.prunes = false, options.budget_seconds = 240, options.repeats = 3;
      const auto result = runner_->choose_plan(inputs_of(batches[0]), space(), options);
      note["search_seconds"] = result.seconds;
      note["explanation"] = result.explanation;
      if (settings_.is_whole_search) note["search"] = json_of(result);
    }
    const auto plan = runner_->plan();
    note["plan"] = describe(plan);
    note["request"] = {{"width", plan.width}, {"workers", plan.workers}, {"threads", plan.intra_op_threads}, {"recorded", plan.recorded}};
    return note;
  }

  std::string profile(const Batches& batches, std::int64_t repeats) override {
    train::RecordedStep step(arrays(), *optimizer_, step_, {}, runner_->plan());
    step(inputs_of(batches[0]));
    return step.print(repeats);
  }

  json costs(const Batches& batches, const std::string& folder) override {
    const auto plan = runner_->plan();
    json result = shares(batches, plan);
    result["evaluation_ms"] = evaluation_ms(batches[0], plan);
    checkpoint(folder, plan, result);
    refill(batches[0], result);
    return result;
  }

 private:
  std::vector<lanes::ArrayBase*> arrays() { return {&array_}; }

  plan::SearchSpace space() const {
    const bool is_cpu = array_.device().is_cpu();
    return {.lanes = settings_.lanes, .cores = is_cpu ? settings_.cores : 1, .steps = settings_.together, .device = array_.device().str(), .precision = settings_.is_double ? "float64" : "float32"};
  }

  /// Forward and backward are the times of the step's own nodes, one group after the other; the update is the rest of a whole step.
  json shares(const Batches& batches, const plan::Plan& plan) {
    const auto inputs = inputs_of(batches[0]);
    const auto step = [&] { (*runner_)(inputs), wait_for(settings_); };
    const auto once = timed_ms(step);
    const double step_ms = best_ms(step, std::clamp(static_cast<int>(300 / once), 5, 500));
    train::RecordedStep recorded(arrays(), *optimizer_, step_, {}, plan);
    recorded(inputs);
    const auto times = times_of(recorded, std::clamp(static_cast<int>(1000 / once), 2, 20));
    const auto groups_of_worker = static_cast<double>((plan::groups(plan, settings_.lanes) + plan.workers - 1) / plan.workers);
    const double forward_ms = times.forward_ms * groups_of_worker, backward_ms = times.backward_ms * groups_of_worker;
    return {{"step_ms", step_ms}, {"forward_ms", forward_ms}, {"backward_ms", backward_ms}, {"update_ms", std::max(0.0, step_ms - forward_ms - backward_ms)},
            {"nodes", times.nodes}, {"dispatch_ms", static_cast<double>(times.nodes) * groups_of_worker * node_ms()}, {"plan", describe(plan)}};
  }

  double evaluation_ms(const Batches::value_type& batch, const plan::Plan& plan) {
    array_.eval();
    train::RecordedEvaluation evaluation(arrays(), [this](std::int64_t lane, std::span<const Tensor> inputs) {
      return std::vector<Tensor>{settings_.workload.forward(*array_.module(lane), inputs[0])};
    }, plan);
    const std::array<train::Input, 1> input{train::Input{batch.first}};
    const auto ms = best_ms([&] { evaluation(input), wait_for(settings_); }, 20);
    array_.train();
    return ms;
  }

  void checkpoint(const std::string& folder, const plan::Plan& plan, json& result) {
    train::TrainerOptions options;
    options.epochs = 2;
    options.plan = plan;
    train::Trainer trainer(arrays(), *optimizer_, step_, options);
    const auto path = folder + "/array.ckpt";
    result["checkpoint_write_ms"] = best_ms([&] { trainer.save(path); }, 2);
    result["checkpoint_read_ms"] = best_ms([&] { trainer.resume(path); }, 2);
  }

  /// Half of the lanes leave, others take their places; each time the next step records anew.
  void refill(const Batches::value_type& batch, json& result) {
    if (settings_.lanes < 2) return;
    std::vector<std::int64_t> kept;
    std::vector<std::uint64_t> seeds;
    for (std::int64_t lane = 0; lane < settings_.lanes; ++lane)
      lane % 2 == 0 ? kept.push_back(lane) : seeds.push_back(1000 + lane);
    const auto step = [&] { (*runner_)(inputs_of(batch)), wait_for(settings_); };
    result["drop_ms"] = timed_ms([&] { array_.keep(kept); });
    result["step_after_drop_ms"] = timed_ms(step);
    result["refill_ms"] = timed_ms([&] { array_.append(seeds); });
    result["step_after_refill_ms"] = timed_ms(step);
  }

  Settings settings_;
  Array<std::shared_ptr<Module>> array_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  train::LaneStep step_;
  std::unique_ptr<train::Runner> runner_;
};

}  // namespace

json Way::costs(const Batches&, const std::string&) { throw Unsupported("arrays_way: only the array tells its costs"); }

std::unique_ptr<Way> make_fused(const Settings& settings) { return std::make_unique<Fused>(settings); }

}  // namespace hfta::bench
