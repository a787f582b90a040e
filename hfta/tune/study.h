#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hfta/tune/sampler.h"
#include "hfta/tune/space.h"
#include "hfta/tune/study_lock.h"
#include "hfta/tune/trial.h"

namespace hfta::tune {

/// User attributes of hfta begin so: "hfta:space".
inline constexpr auto kPrefix = "hfta:";

struct StudyOptions {
  std::string name = "hfta";
  std::vector<Direction> directions{Direction::Minimize};
  std::chrono::milliseconds patience = std::chrono::minutes(1);  ///< How long a write waits for other processes.
};

/// A value that a trial reached at a step (an epoch).
struct Report {
  std::int64_t trial = 0;
  std::int64_t step = 0;
  double value = 0;
};

/// What becomes of a trial whose process died.
enum class Reclaim {
  Continue,  ///< Stays running and is handed out, to go on from its checkpoint.
  Requeue,   ///< Waits to be begun anew with the same parameters; its intermediate values go.
  Fail,
};

/// A study: one SQLite file that Optuna opens as its own. Each call is one transaction, so a kill loses at most the call it interrupts.
/// Several processes and threads may use one study at once.
class Study {
 public:
  /// Makes the study, or opens it where it is there already.
  /// @throws InvalidArgument when its directions are others; Error when the file is no study or cannot be written.
  static Study create(const std::string& path, const StudyOptions& options = {});
  /// Opens a study that is there; an empty name takes the only one of the file.
  static Study open(const std::string& path, const std::string& name = {});
  /// The same for reading only, while another process may be writing.
  static Study read(const std::string& path, const std::string& name = {});
  ~Study();
  Study(Study&&) noexcept;
  Study& operator=(Study&&) noexcept;

  const std::string& path() const;
  const std::string& name() const;
  const std::vector<Direction>& directions() const;

  /// All trials by number.
  std::vector<Trial> trials() const;
  /// @throws InvalidArgument for a number that is not there.
  Trial trial(std::int64_t number) const;
  /// As `tune::best`. @throws InvalidArgument for a study with several directions.
  std::optional<Trial> best() const;

  /// Makes this the study's space. @throws InvalidArgument naming each parameter that differs from the study's, with both definitions,
  /// unless `new_space`.
  void adopt(const Space& space, bool new_space = false);
  /// The space that was adopted.
  std::optional<Space> space() const;

  /// Begins up to `count` trials: those waiting first (their parameters kept, missing ones drawn; outside of the space they fail), then new
  /// ones from the sampler. Fewer when the sampler has nothing new. No two processes get the same trial.
  std::vector<Trial> ask(const Space& space, Sampler& sampler, std::uint64_t seed, std::int64_t count = 1);
  /// Adds a trial with these parameters, running or waiting. @returns its number.
  std::int64_t add(const Parameters& parameters, TrialState state = TrialState::Running);
  /// Stores values of running trials, NaN and infinities included; a step told twice keeps the last.
  void report(std::span<const Report> reports);
  void report(std::int64_t trial, std::int64_t step, double value) { report(std::span<const Report>(std::array{Report{trial, step, value}})); }
  /// Ends a trial. Complete with NaN becomes Fail, with the values kept in the attribute `hfta:values`; Pruned without values takes the
  /// last intermediate one, as Optuna does. A reason is kept in `hfta:reason`. @returns the state stored.
  TrialState finish(std::int64_t trial, TrialState state, const std::vector<double>& values = {}, const std::string& reason = {});

  /// Deals with trials that hfta left running when it was killed; the lock says that no other process of hfta runs any. Those outside of the
  /// space fail. `hfta:reclaimed` counts how often this happened to a trial. @returns the trials to continue.
  std::vector<Trial> reclaim(const StudyLock& lock, const Space& space, const std::function<Reclaim(const Trial&)>& decide);

  /// User attributes; the value is JSON. @throws InvalidArgument when it is none.
  void set_user_attribute(const std::string& key, const std::string& json);
  void set_user_attribute(std::int64_t trial, const std::string& key, const std::string& json);
  std::map<std::string, std::string> user_attributes() const;

 private:
  struct State;
  explicit Study(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hfta::tune
