#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hfta/cli/study_data.h"
#include "hfta/cli/study_file.h"
#include "hfta/tune/tuner.h"
#include "hfta/zoo/registry.h"

namespace hfta::cli {

/// What a trial's lane is made of: the study file's values with the trial's own in their places.
struct LaneSetup {
  std::uint64_t seed = 0;                 ///< The study's seed and the trial's number, unless searched.
  std::string optimizer;
  std::map<std::string, double> hypers;   ///< Those that are given or searched.
  std::int64_t batch_size = 0;
  base::Options model;
};
LaneSetup lane_setup(const StudyFile& file, const tune::Trial& trial);

/// Makes the trials of a study trainable.
class TrialMaker {
 public:
  /// @throws InvalidArgument, with the place in the study file, for a device, a model or an option that there is not.
  TrialMaker(const StudyFile& file, StudyData data);

  /// Trials of equal kind can be lanes of one array.
  std::string kind(const tune::Trial& trial) const;
  /// What sets kinds apart, for people: {"optimizer", "adam"}, {"batch_size", "64"}, {"hidden", "128"}.
  std::vector<std::pair<std::string, std::string>> kind_parts(const tune::Trial& trial) const;
  /// One array for trials of one kind. This outlives it.
  tune::TrialArray make(const std::vector<tune::Trial>& trials) const;

  bool has_test() const { return data_.test.size() > 0; }
  /// Metrics of a trial's exported weights over the test examples.
  train::Metrics test(const tune::Trial& trial, const std::string& weights) const;

  /// Training steps of one epoch.
  std::int64_t steps_of_epoch(const tune::Trial& trial) const;
  const StudyData& data() const { return data_; }

 private:
  zoo::Model model(const LaneSetup& setup) const;
  /// The fixed options with the first value of each searched one.
  LaneSetup first_setup() const;
  /// Tries the values that reach furthest. @throws InvalidArgument with the place of an entry that has one which the model refuses.
  void check_space() const;

  const StudyFile& file_;
  StudyData data_;
  zoo::Registry registry_;
  std::string model_name_;
};

}  // namespace hfta::cli
