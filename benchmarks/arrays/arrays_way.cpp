// One way of training an array of models, driven over standard input and output by `bench.py`: each line in is a command, each line out
// its answer as JSON. The process keeps the way ready, so that repeats of many ways can take turns. Or, once, what the processor can do.

#include <ATen/autocast_mode.h>

#include <chrono>
#include <fstream>
#include <iostream>

#include "hfta/base/memory.h"
#include "hfta/hfta.h"
#include "multiply_adds.h"
#include "way.h"

namespace hfta::bench {
namespace {

using at::Tensor;
using nlohmann::json;

/// Autocast of a device to bfloat16 for a scope; casts of weights do not outlive it.
class Bf16 {
 public:
  explicit Bf16(c10::DeviceType device) : device_(device), was_on_(at::autocast::is_autocast_enabled(device)), type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Bf16() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_, type_);
    at::autocast::set_autocast_enabled(device_, was_on_);
  }
  Bf16(const Bf16&) = delete;
  Bf16& operator=(const Bf16&) = delete;

 private:
  c10::DeviceType device_;
  bool was_on_;
  at::ScalarType type_;
};

/// The lanes' parameters one after the other as raw numbers.
void write_weights(const Way& way, std::int64_t lanes, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (std::int64_t lane = 0; lane < lanes; ++lane)
    for (const auto& parameter : way.lane_parameters(lane)) {
      const auto values = parameter.detach().cpu().contiguous();
      out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
    }
  HFTA_CHECK(out.flush(), "arrays_way: could not write ", path);
}

json answer(Way& way, const Settings& settings, const Batches& batches, const json& command) {
  const auto what = command.at("do").get<std::string>();
  if (what == "steps") {
    const auto start = now_ms();
    way.steps(batches, command.at("count"));
    return {{"ms", now_ms() - start}};
  }
  if (what == "settle") return {{"note", way.settle(batches)}};
  if (what == "weights") return write_weights(way, settings.lanes, command.at("path")), json{{"done", true}};
  if (what == "profile") return {{"nodes", way.profile(batches, command.at("repeats"))}};
  if (what == "costs") return way.costs(batches, command.at("folder"));
  throw InvalidArgument("arrays_way: expected steps, settle, weights, profile or costs, got " + what);
}

Settings settings_of(const json& request) {
  return {.workload = workload(request.at("model")),
          .lanes = request.at("lanes"),
          .batch = request.at("batch"),
          .optimizer = request.at("optimizer"),
          .device = request.value("device", "cpu"),
          .is_double = request.value("dtype", "float32") == "float64",
          .is_bf16 = request.value("bf16", false),
          .cores = request.at("cores"),
          .plan = request.value("plan", json()),
          .is_whole_search = request.value("whole_search", false),
          .together = request.value("together", std::int64_t{1})};
}

void serve(const json& request) {
  const auto settings = settings_of(request);
  if (settings.is_double) torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  torch::manual_seed(12345);
  Batches batches;
  for (int i = 0; i < kBatches; ++i) {
    auto [x, y] = settings.workload.draw(settings.batch);
    batches.emplace_back(x.to(settings.device), y.to(settings.device));
  }
  const auto way = request.at("way") == "libtorch" ? make_alone(settings) : make_fused(settings);
  std::cout << json{{"ready", true}} << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(*way, settings, batches, json::parse(line)) << std::endl;
}

}  // namespace

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void wait_for(const Settings& settings) {
  if (c10::Device(settings.device).is_cuda()) torch::cuda::synchronize();
}

Tensor loss_of(const Settings& settings, torch::nn::Module& net, const Tensor& x, const Tensor& y) {
  if (!settings.is_bf16) return torch::nn::functional::cross_entropy(settings.workload.forward(net, x), y);
  const Bf16 scope(c10::Device(settings.device).type());
  return torch::nn::functional::cross_entropy(settings.workload.forward(net, x), y);
}

}  // namespace hfta::bench

int main(int count, char** arguments) {
  hfta::base::keep_freed_memory();
  try {
    HFTA_CHECK(count == 2, "arrays_way: expected one argument, the request as JSON");
    const auto request = nlohmann::json::parse(arguments[1]);
    if (request.contains("multiply_adds"))
      std::cout << nlohmann::json{{"flops", hfta::bench::multiply_adds_per_second(request.at("multiply_adds"))}} << std::endl;
    else
      hfta::bench::serve(request);
    return 0;
  } catch (const std::exception& e) {
    std::cout << nlohmann::json{{"error", e.what()}} << std::endl;
    return 1;
  }
}
