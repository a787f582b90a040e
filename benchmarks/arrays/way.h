#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models.h"

namespace hfta::bench {

using Batches = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// What a row of the benchmark trains, as `bench.py` asks for it.
struct Settings {
  Workload workload;
  std::int64_t lanes, batch;
  std::string optimizer;  ///< "adam" or "sgd" (with momentum 0.9).
  std::string device;
  bool is_double = false;
  bool is_bf16 = false;   ///< Forward under autocast to bfloat16; weights and updates stay float32.
  int cores = 1;
  nlohmann::json plan{};  ///< Empty: chosen by timing.
  bool is_whole_search = false;  ///< Times every plan, and tells all.
  std::int64_t together = 1;  ///< Steps in one call.
};

inline constexpr double kRate = 1e-3;
inline constexpr int kBatches = 4;

double now_ms();
/// Waits until the device has done what it was given.
void wait_for(const Settings& settings);
/// The row's loss, under autocast where it says so.
at::Tensor loss_of(const Settings& settings, torch::nn::Module& net, const at::Tensor& x, const at::Tensor& y);

/// A way to train the lanes: a step of all lanes on one batch.
class Way {
 public:
  virtual ~Way() = default;
  virtual void steps(const Batches& batches, std::int64_t count) = 0;
  virtual std::vector<at::Tensor> lane_parameters(std::int64_t lane) const = 0;
  /// Called once, between the checked steps and the timed ones: chooses how to run. @returns a note for the table.
  virtual nlohmann::json settle(const Batches& batches) = 0;
  /// The time of each node of a group's program, averaged over `repeats`; empty where there is none.
  virtual std::string profile(const Batches&, std::int64_t) { return ""; }
  /// What an array costs beside its steps; leaves the way unfit for more. @param folder where it may write files.
  virtual nlohmann::json costs(const Batches& batches, const std::string& folder);
};

/// The models one after the other in LibTorch, on one thread or on all cores, whichever is faster.
std::unique_ptr<Way> make_alone(const Settings& settings);
/// The array, at a plan that is given or chosen by timing.
std::unique_ptr<Way> make_fused(const Settings& settings);

}  // namespace hfta::bench
