#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hfta/train/trainer.h"
#include "tests/train/models.h"

namespace hfta::test {

inline const std::vector<double> kRates{1e-2, 3e-3, 1e-3, 3e-2};

/// What a test of the trainer chooses; batches, metrics and plan are the same for all.
struct Choice {
  std::int64_t epochs = 1;
  bool compact = true;
  std::optional<optim::PerLane> max_norm{};
};

/// An array of four lanes, 3 batches an epoch of different sizes, and accuracy on held-out batches.
struct Training {
  explicit Training(train::TrainerOptions with) : options(complete(std::move(with))), trainer({&array}, adam, lane_step(array, loss_of), options) {}
  explicit Training(const Choice& choice) : Training(options_of(choice)) {}

  static std::optional<train::TrainBatch> batch(std::int64_t epoch, std::int64_t index) {
    if (index == 3) return std::nullopt;
    const std::int64_t items = index == 2 ? 4 : 6;
    const Data data(1, items, 1000 * epoch + index);
    return train::TrainBatch{{{data.x[0]}, {data.y[0]}}, items};
  }
  static std::vector<train::TrainBatch> batches(std::int64_t epoch) { return {*batch(epoch, 0), *batch(epoch, 1), *batch(epoch, 2)}; }

  train::RunStatus go(const train::Callbacks& callbacks = {}) { return trainer.run(training, &validation, callbacks); }
  /// Parameters and buffers of the lane that began with this index.
  std::vector<torch::Tensor> state(std::int64_t id) const {
    const auto at = std::find(trainer.ids().begin(), trainer.ids().end(), id) - trainer.ids().begin();
    return state_of(*array.module(at));
  }

  Array<Net> array{4, [](std::int64_t) { return Net(); }};
  optim::Adam adam{array, {.lr = kRates}};
  train::FunctionSource training{batch}, validation{[](std::int64_t, std::int64_t index) { return batch(100, index); }};
  train::TrainerOptions options;
  train::Trainer trainer;

 private:
  static train::TrainerOptions options_of(const Choice& choice) {
    train::TrainerOptions made;
    made.epochs = choice.epochs;
    made.compact = choice.compact;
    made.step.max_norm = choice.max_norm;
    return made;
  }
  train::TrainerOptions complete(train::TrainerOptions made) {
    if (!made.plan) made.plan = plan::Plan{.width = 1, .workers = 2, .recorded = false};
    if (made.metrics.names.empty())
      made.metrics = {{"accuracy"}, lane_function(array, [](Net& net, const torch::Tensor& x, const torch::Tensor& y) {
                        return (net->forward(x).argmax(1) == y).to(torch::kFloat).mean();
                      })};
    return made;
  }
};

/// A folder of its own that is gone after the test.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "hfta_train_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path;
};

}  // namespace hfta::test
