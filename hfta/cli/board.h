#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace hfta::cli {

/// A trial as a person watches it.
struct TrialRow {
  std::int64_t number = 0;
  std::string state = "waiting";  ///< waiting, running, complete, pruned, failed
  std::int64_t epoch = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();    ///< Of the training examples, in the last epoch.
  double metric = std::numeric_limits<double>::quiet_NaN();  ///< Of the validation examples, after the last epoch.
  std::vector<std::pair<std::string, std::string>> parameters{};
  std::string reason{};           ///< Why it stopped early or failed.
};

/// All that a person watches of a sweep.
struct Board {
  std::string study, metric, plan;
  bool maximize = true;
  std::int64_t epochs = 0;
  std::vector<TrialRow> trials;           ///< By number.
  std::int64_t steps = 0, steps_ahead = 0;  ///< Model-steps taken and to be taken: one step of one model.
  double seconds = 0;                     ///< Spent on the steps taken.
  std::string phase;                      ///< What is done where no step is taken: "timing plans".
  bool is_stopping = false;
};

/// The trial with the best metric so far, or null.
const TrialRow* best_trial(const Board& board);
/// Model-steps per second; 0 before the first.
double speed(const Board& board);

/// How the board is drawn.
struct Frame {
  int width = 80, height = 24;
  bool has_colour = false;
};

/// The board as lines no wider and no more than the frame: running trials first, then the best; says how many are left out.
std::vector<std::string> draw(const Board& board, const Frame& frame);

/// "0:07", "12:45", "2:03:09".
std::string duration(double seconds);
/// Four significant digits: "0.8912", "1.235e-05", "nan".
std::string rounded(double value);

}  // namespace hfta::cli
