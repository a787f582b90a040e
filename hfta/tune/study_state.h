#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hfta/tune/sqlite.h"
#include "hfta/tune/study.h"

// How a study reads and writes its rows. For sources only.
namespace hfta::tune {

struct Study::State {
  State(std::string path, Access access, std::chrono::milliseconds patience) : database(std::move(path), access, patience) {}
  /// Opens the file and finds the study in it.
  static std::unique_ptr<State> open(const std::string& path, const std::string& name, Access access, std::chrono::milliseconds patience);

  Database database;
  std::int64_t id = 0;
  std::string name{};
  std::vector<Direction> directions{};
  std::unordered_set<std::int64_t> own{};  ///< Numbers of the trials that this object began.
  std::unordered_map<std::string, Distribution> distributions{};  ///< Read so far: every trial repeats them.
  std::unordered_map<std::int64_t, std::int64_t> rows{};           ///< Number -> row, of trials asked for so far: it never changes.
  std::mutex mutex{};

  /// Trials by number, or only this one.
  std::vector<Trial> load(std::optional<std::int64_t> number = {});
  Trial load_one(std::int64_t number);
  /// Row of the trial. @throws InvalidArgument for a number that is not there.
  std::int64_t row_of(std::int64_t number);
  /// The same of a trial that must be running.
  std::int64_t running(std::int64_t number);
  /// Inserts a trial; its number is set. @returns its row.
  std::int64_t insert(Trial& trial);
  void write_parameters(std::int64_t row, const Parameters& parameters);
  void set_attribute(std::int64_t row, const std::string& key, const std::string& json);
  void end(std::int64_t row, TrialState state, const std::vector<double>& values, const std::string& reason);
  /// Begins a waiting trial; false (and it has failed) when its parameters lie outside of the space.
  bool begin(Trial& trial, const Space& space, Random& random);
};

Time now();
std::string to_text(Time time);
/// @throws Error for a text that is no time.
Time time_of(const std::string& text);

/// The JSON as Python writes it. @throws InvalidArgument naming the attribute.
std::string attribute_json(const std::string& key, const std::string& json);

}  // namespace hfta::tune
