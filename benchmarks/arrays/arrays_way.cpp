// One way of training an array of models, driven over standard input and output by `bench.py`: each line in is a command, each line out
// its answer as JSON. The process keeps the way ready, so that repeats of many ways can take turns.

#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>
#include <iostream>

#include "hfta/base/memory.h"
#include "hfta/base/threads.h"
#include "hfta/hfta.h"
#include "models.h"

namespace {

using at::Tensor;
using nlohmann::json;
using Module = torch::nn::Module;
using Batches = std::vector<std::pair<Tensor, Tensor>>;

struct Settings {
  hfta::bench::Workload workload;
  std::int64_t lanes, batch;
  std::string optimizer;
  int cores;
};

constexpr double kRate = 1e-3;
constexpr int kBatches = 4;

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Tensor loss_of(const Settings& settings, Module& net, const Tensor& x, const Tensor& y) {
  return torch::nn::functional::cross_entropy(settings.workload.forward(net, x), y);
}

/// A way: a step of all lanes on one batch.
class Way {
 public:
  virtual ~Way() = default;
  virtual void step(const Tensor& x, const Tensor& y) = 0;
  virtual std::vector<Tensor> lane_parameters(std::int64_t lane) const = 0;
  /// Called once, between the checked steps and the timed ones: chooses how to run. @returns a note for the table.
  virtual json settle(const Batches& batches) = 0;
};

/// The models one after the other in LibTorch, on one thread or on all cores, whichever is faster.
class Alone final : public Way {
 public:
  explicit Alone(const Settings& settings) : settings_(settings) {
    for (std::int64_t lane = 0; lane < settings.lanes; ++lane) {
      torch::manual_seed(lane);
      nets_.push_back(settings.workload.build());
      if (settings.optimizer == "sgd")
        optimizers_.push_back(std::make_unique<torch::optim::SGD>(nets_.back()->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9)));
      else
        optimizers_.push_back(std::make_unique<torch::optim::Adam>(nets_.back()->parameters(), torch::optim::AdamOptions(kRate)));
    }
    at::set_num_threads(settings.cores);
  }
  void step(const Tensor& x, const Tensor& y) override {
    for (std::size_t i = 0; i < nets_.size(); ++i) {
      optimizers_[i]->zero_grad();
      loss_of(settings_, *nets_[i], x, y).backward();
      optimizers_[i]->step();
    }
  }
  std::vector<Tensor> lane_parameters(std::int64_t lane) const override { return nets_[lane]->parameters(); }
  json settle(const Batches& batches) override {
    std::map<int, double> best;
    for (int repeat = 0; repeat < 3; ++repeat)
      for (const int threads : {1, settings_.cores}) {
        at::set_num_threads(threads);
        const auto start = now_ms();
        step(batches[0].first, batches[0].second);
        const auto ms = now_ms() - start;
        if (!best.contains(threads) || ms < best[threads]) best[threads] = ms;
      }
    const int threads = best[1] < best[settings_.cores] ? 1 : settings_.cores;
    at::set_num_threads(threads);
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }

 private:
  Settings settings_;
  std::vector<std::shared_ptr<Module>> nets_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

/// The array, at a plan that is given or chosen by timing.
class Fused final : public Way {
 public:
  Fused(const Settings& settings, const json& plan)
      : settings_(settings), array_(settings.lanes, [&](std::int64_t) { return settings.workload.build(); }) {
    if (settings.optimizer == "sgd")
      optimizer_ = std::make_unique<hfta::optim::SGD>(array_, hfta::optim::SGDOptions{.lr = kRate, .momentum = 0.9});
    else
      optimizer_ = std::make_unique<hfta::optim::Adam>(array_, hfta::optim::AdamOptions{.lr = kRate});
    runner_ = std::make_unique<hfta::train::Runner>(
        std::vector<hfta::lanes::ArrayBase*>{&array_}, *optimizer_, [this](std::int64_t lane, std::span<const Tensor> inputs) {
          return hfta::train::StepResult{loss_of(settings_, *array_.module(lane), inputs[0], inputs[1])};
        });
    if (plan.is_object()) {
      runner_->set_plan({.width = plan.value("width", std::int64_t{1}),
                         .workers = plan.value("workers", std::int64_t{1}),
                         .intra_op_threads = plan.value("threads", 1),
                         .recorded = plan.value("recorded", true)});
      given_ = true;
    }
  }
  void step(const Tensor& x, const Tensor& y) override {
    const std::array<hfta::train::Input, 2> inputs{hfta::train::Input{x}, hfta::train::Input{y}};
    (*runner_)(inputs);
  }
  std::vector<Tensor> lane_parameters(std::int64_t lane) const override { return array_.lane_parameters(lane); }
  json settle(const Batches& batches) override {
    const std::array<hfta::train::Input, 2> inputs{hfta::train::Input{batches[0].first}, hfta::train::Input{batches[0].second}};
    json note;
    if (!given_) {
      const auto result = runner_->choose_plan(inputs, {.lanes = settings_.lanes, .cores = settings_.cores});
      note["search_seconds"] = result.seconds;
      note["explanation"] = result.explanation;
    }
    note["plan"] = describe(runner_->plan());
    return note;
  }

 private:
  Settings settings_;
  hfta::Array<std::shared_ptr<Module>> array_;
  std::unique_ptr<hfta::optim::Optimizer> optimizer_;
  std::unique_ptr<hfta::train::Runner> runner_;
  bool given_ = false;
};

/// The lanes' parameters one after the other as raw float32.
void write_weights(const Way& way, std::int64_t lanes, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (std::int64_t lane = 0; lane < lanes; ++lane)
    for (const auto& parameter : way.lane_parameters(lane)) {
      const auto values = parameter.detach().contiguous();
      out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
    }
  HFTA_CHECK(out.flush(), "arrays_way: could not write ", path);
}

json answer(Way& way, const Settings& settings, const Batches& batches, const json& command) {
  const auto what = command.at("do").get<std::string>();
  if (what == "steps") {
    const auto count = command.at("count").get<std::int64_t>();
    const auto start = now_ms();
    for (std::int64_t i = 0; i < count; ++i) way.step(batches[i % kBatches].first, batches[i % kBatches].second);
    return {{"ms", now_ms() - start}};
  }
  if (what == "settle") return {{"note", way.settle(batches)}};
  if (what == "weights") return write_weights(way, settings.lanes, command.at("path")), json{{"done", true}};
  throw hfta::InvalidArgument("arrays_way: expected steps, settle or weights, got " + what);
}

void serve(const json& request) {
  const Settings settings{hfta::bench::workload(request.at("model")), request.at("lanes"), request.at("batch"), request.at("optimizer"), request.at("cores")};
  torch::manual_seed(12345);
  Batches batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(settings.workload.draw(settings.batch));
  std::unique_ptr<Way> way;
  if (request.at("way") == "libtorch")
    way = std::make_unique<Alone>(settings);
  else
    way = std::make_unique<Fused>(settings, request.value("plan", json()));
  std::cout << json{{"ready", true}} << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(*way, settings, batches, json::parse(line)) << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  hfta::base::keep_freed_memory();
  try {
    HFTA_CHECK(count == 2, "arrays_way: expected one argument, the request as JSON");
    serve(json::parse(arguments[1]));
    return 0;
  } catch (const std::exception& e) {
    std::cout << json{{"error", e.what()}} << std::endl;
    return 1;
  }
}
