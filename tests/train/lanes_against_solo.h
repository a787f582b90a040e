#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hfta/base/generator.h"
#include "hfta/base/threads.h"
#include "hfta/lanes/typed_array.h"
#include "hfta/ops/rule.h"
#include "hfta/train/recorded_function.h"
#include "tests/support.h"

namespace hfta::test {

template <typename Net>
using Loss = std::function<at::Tensor(Net&, const at::Tensor& x, const at::Tensor& y)>;

/// Of one lane: the loss and the gradient of each parameter.
template <typename Net>
train::LaneFunction loss_and_gradients(Array<Net>& array, Loss<Net> loss) {
  return [&array, loss = std::move(loss)](std::int64_t lane, std::span<const at::Tensor> inputs) {
    Net net = array.lane(lane);
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    auto value = loss(net, inputs[0], inputs[1]);
    value.backward();
    std::vector<at::Tensor> results{value.detach()};
    for (const auto& p : array.lane_parameters(lane)) {
      results.push_back(p.grad());
      p.mutable_grad() = at::Tensor();
    }
    return results;
  };
}

struct Setting {
  std::int64_t width = 3, workers = 1;
  bool per_lane = false, training = true;
  torch::ScalarType dtype = torch::kFloat;
  double factor = 1;  ///< Of the tolerance.
  std::optional<std::map<std::string, std::string>> lowerings{};  ///< These, and each other operator's first; empty: timed ones.
};

constexpr std::int64_t kLanes = 4;

/// Choices of lowerings that take each operator of `keys` through all of its ways.
inline std::vector<std::map<std::string, std::string>> ways_of_lowerings(const std::map<std::string, std::string>& keys, std::int64_t width) {
  std::vector<std::map<std::string, std::string>> ways;
  for (std::size_t way = 0, most = 1; way < most; ++way) {
    std::map<std::string, std::string> choice;
    for (const auto& [key, first] : keys) {
      const auto name = key.substr(0, key.find(' ')), overload = name.find('.') == std::string::npos ? std::string() : name.substr(name.find('.') + 1);
      std::vector<std::string> names;
      if (width == 1) names.push_back("native");
      for (const auto& lowering : ops::find_rules({name.substr(0, name.find('.')), overload})->lowerings)
        if (width > 1 || lowering.cpu_only) names.emplace_back(lowering.name);
      most = std::max(most, names.size());
      choice[key] = names[way % names.size()];
    }
    ways.push_back(std::move(choice));
  }
  return ways;
}

/// One replay and an update, compared with the plain twin's.
template <typename Net>
void expect_equal_step(const Setting& setting, Array<Net>& array, Array<Net>& solo, train::RecordedFunction& recorded, const train::LaneFunction& plain, int step) {
  auto random = base::seeded_generator(static_cast<std::uint64_t>(step));
  const auto x = setting.per_lane ? torch::randn({kLanes, 6, 12}, random) : torch::randn({6, 12}, random), y = torch::randint(5, {6}, random);
  const std::vector<train::Input> inputs{{x, setting.per_lane}, {y, false}};
  std::vector<std::vector<at::Tensor>> got(kLanes);
  recorded.run(inputs, [&](std::int64_t first, std::int64_t width, std::span<const at::Tensor> results) {
    for (std::int64_t i = 0; i < width; ++i)
      for (const auto& r : results) got[first + i].push_back(r.defined() ? r[i].clone() : at::Tensor());
  });
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const base::IntraOpThreads threads(1);
    const base::DefaultGeneratorScope random_of_lane(solo.generator(lane));
    const auto expected = plain(lane, std::vector<at::Tensor>{setting.per_lane ? x[lane] : x, y});
    ASSERT_EQ(got[lane].size(), expected.size());
    double scale = 1;
    for (const auto& e : expected)
      if (e.defined()) scale = std::max(scale, e.abs().max().template item<double>());
    const at::NoGradGuard no_grad;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ASSERT_TRUE(close(got[lane][k], expected[k], tolerance(setting.dtype, setting.factor), scale))
          << "result " << k << " of lane " << lane << ", step " << step << '\n' << recorded.report();
      if (k == 0 || !expected[k].defined()) continue;
      solo.lane_parameters(lane)[k - 1].sub_(expected[k], 0.05);
      array.lane_parameters(lane)[k - 1].sub_(got[lane][k], 0.05);
    }
    for (std::size_t k = 0; k < solo.buffers().size(); ++k)
      ASSERT_TRUE(close(array.lane_buffers(lane)[k], solo.lane_buffers(lane)[k], tolerance(setting.dtype, setting.factor))) << "buffer " << k << " of lane " << lane;
  }
}

/// Records, then replays on three batches with an update between: loss, gradients and buffers of each lane must be those of a plain twin that
/// is run alone, from equal seeds. Inputs: `x` `[6, 12]`, `y` `[6]` of 5 classes. @returns the lowerings that it took.
template <typename Net>
std::map<std::string, std::string> expect_lanes_equal_solo(const std::function<Net(std::int64_t)>& build, const Loss<Net>& loss, Setting setting = {}) {
  torch::set_default_dtype(c10::scalarTypeToTypeMeta(setting.dtype));
  struct Restore {
    ~Restore() { torch::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat)); }
  } restore;
  Array<Net> array(kLanes, build), solo(kLanes, build);
  array.train(setting.training), solo.train(setting.training);
  const plan::Plan plan{.width = setting.width, .workers = setting.workers, .lowerings = setting.lowerings.value_or(std::map<std::string, std::string>()),
                        .measures_lowerings = !setting.lowerings};
  train::RecordedFunction recorded({&array}, loss_and_gradients<Net>(array, loss), plan);
  const auto plain = loss_and_gradients<Net>(solo, loss);
  for (int step = 0; step < 3 && !::testing::Test::HasFatalFailure(); ++step) expect_equal_step<Net>(setting, array, solo, recorded, plain, step);
  return recorded.plan().lowerings;
}

}  // namespace hfta::test
