#include <ATen/Parallel.h>

#include <map>

#include "way.h"

namespace hfta::bench {
namespace {

class Alone final : public Way {
 public:
  explicit Alone(const Settings& settings) : settings_(settings) {
    for (std::int64_t lane = 0; lane < settings.lanes; ++lane) {
      torch::manual_seed(lane);
      nets_.push_back(settings.workload.build());
      nets_.back()->to(c10::Device(settings.device));
      if (settings.optimizer == "sgd")
        optimizers_.push_back(std::make_unique<torch::optim::SGD>(nets_.back()->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9)));
      else
        optimizers_.push_back(std::make_unique<torch::optim::Adam>(nets_.back()->parameters(), torch::optim::AdamOptions(kRate)));
    }
    at::set_num_threads(settings.cores);
  }

  void steps(const Batches& batches, std::int64_t count) override {
    for (std::int64_t i = 0; i < count; ++i) step(batches[i % batches.size()]);
    wait_for(settings_);
  }

  std::vector<at::Tensor> lane_parameters(std::int64_t lane) const override { return nets_[lane]->parameters(); }

  nlohmann::json settle(const Batches& batches) override {
    std::map<int, double> best;
    for (int repeat = 0; repeat < 3; ++repeat)
      for (const int threads : {1, settings_.cores}) {
        at::set_num_threads(threads);
        const auto start = now_ms();
        steps(batches, 1);
        const auto ms = now_ms() - start;
        if (!best.contains(threads) || ms < best[threads]) best[threads] = ms;
      }
    const int threads = best[1] < best[settings_.cores] ? 1 : settings_.cores;
    at::set_num_threads(threads);
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }

 private:
  void step(const Batches::value_type& batch) {
    for (std::size_t i = 0; i < nets_.size(); ++i) {
      optimizers_[i]->zero_grad();
      loss_of(settings_, *nets_[i], batch.first, batch.second).backward();
      optimizers_[i]->step();
    }
  }

  Settings settings_;
  std::vector<std::shared_ptr<torch::nn::Module>> nets_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

}  // namespace

std::unique_ptr<Way> make_alone(const Settings& settings) { return std::make_unique<Alone>(settings); }

}  // namespace hfta::bench
