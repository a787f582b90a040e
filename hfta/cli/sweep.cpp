#include <filesystem>
#include <fstream>
#include <ostream>

#include "hfta/base/error.h"
#include "hfta/base/log.h"
#include "hfta/base/memory.h"
#include "hfta/cli/commands.h"
#include "hfta/cli/dry_run.h"
#include "hfta/cli/interrupt.h"
#include "hfta/cli/locate.h"
#include "hfta/cli/space_section.h"
#include "hfta/cli/summary.h"
#include "hfta/cli/sweep_events.h"
#include "hfta/cli/trial_maker.h"
#include "hfta/cli/tuner_options.h"
#include "hfta/cli/watch.h"
#include "hfta/tune/resume.h"

namespace hfta::cli {
namespace {

namespace fs = std::filesystem;

/// The study file of the options; `resume` also takes a run folder.
Located find(const SweepOptions& options) {
  Located located;
  if (options.must_exist) {
    located = locate(options.study);
    HFTA_CHECK(located.file, options.study, ": expected a study file or a run folder, got a SQLite file");
  } else {
    located.file = read_study_file(options.study);
    located.storage = located.file->output.storage;
    located.folder = located.file->output.folder;
    located.name = located.file->study.name;
  }
  std::error_code ignored;
  HFTA_CHECK(!options.must_exist || fs::exists(located.storage, ignored), located.storage, ": expected a study to go on with, got none; 'hfta sweep' begins one");
  return located;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + folder + ": " + error.message());
}

/// The study file beside the results, so that the run folder alone is enough to go on.
void keep_study_file(const Located& located) {
  const auto target = fs::path(located.folder) / "study.toml";
  const auto part = target.string() + ".part";
  std::ofstream stream(part, std::ios::binary);
  stream << located.file->text;
  stream.close();
  std::error_code error;
  if (stream) fs::rename(part, target, error);
  if (!stream || error) throw Error("cannot write " + target.string());
}

tune::TrialRequest request_of(const SweepOptions& options, const StudyFile& file, const tune::Space& space) {
  tune::TrialRequest request;
  request.more = options.more;
  request.points = file.study.sampler == "grid" ? std::optional(tune::GridSampler().size(space)) : space.points();
  constexpr std::int64_t kDefaultTrials = 16;
  const auto in_file = file.study.trials ? *file.study.trials : file.study.sampler == "grid" ? static_cast<std::int64_t>(*request.points) : kDefaultTrials;
  request.total = options.trials.value_or(in_file);
  return request;
}

/// The tuner's refusal names its own option; here it is a flag. @throws InvalidArgument with both definitions.
void adopt(tune::Study& study, const tune::Space& space, bool has_new_space) {
  const auto known = study.space();
  const auto changes = known ? tune::space_changes(*known, space) : tune::space_changes(study.trials(), space);
  std::string text;
  for (const auto& change : changes) text += (text.empty() ? "" : ", and ") + change;
  HFTA_CHECK(has_new_space || changes.empty(), "the space differs from the study's: expected ", text, "; --new-space goes on with it");
  study.adopt(space, true);
}

/// Moves exported weights that were not asked for out of the way.
void prune_weights(const StudyFile& file, const tune::Study& study, const Located& located) {
  if (file.output.weights == "all") return;
  const auto best = file.output.weights == "best" ? study.best() : std::nullopt;
  std::error_code ignored;
  for (const auto& trial : study.trials())
    if (!best || trial.number != best->number) fs::remove(located.weights(trial.number), ignored);
}

}  // namespace

int sweep(const SweepOptions& options, Streams streams) {
  const auto located = find(options);
  const auto& file = *located.file;
  const auto space = tune_space(file.space);
  base::keep_freed_memory();
  const TrialMaker maker(file, load_data(file.data, file.study.seed));
  const auto sampler = tune::make_sampler(file.study.sampler);
  const auto request = request_of(options, file, space);
  if (options.is_dry_run) return dry_run({located, file, space, *sampler, maker, request, options.format, options.has_program}, streams);

  make_folder(located.folder);
  make_folder(fs::path(located.storage).parent_path().string());
  const tune::StudyLock lock(located.storage);
  auto study = tune::Study::create(located.storage, {.name = located.name, .directions = {file.study.maximize ? tune::Direction::Maximize : tune::Direction::Minimize}});
  adopt(study, space, options.has_new_space);
  keep_study_file(located);
  base::set_log_file((fs::path(located.folder) / "log.txt").string());

  const auto trials = tune::plan_trials(static_cast<std::int64_t>(study.trials().size()), request);
  Summary summary;
  {
    const Interrupts interrupts;
    const auto watch = make_watch(options.format, streams);
    watch->note(trials.summary);
    SweepEvents events(file, maker, study, *watch);
    tune::Tuner tuner(study, lock, space, *sampler, [&](const tune::Trial& trial) { return maker.kind(trial); },
                      [&](const std::vector<tune::Trial>& members) { return maker.make(members); }, tuner_options(file, located.folder));
    summary.is_interrupted = tuner.run(trials.create, events.tuner_events()) == train::RunStatus::Interrupted;
    summary.board = events.board();
    if (!summary.is_interrupted) complete(summary, located, study, maker);
  }
  prune_weights(file, study, located);
  base::set_log_file({});
  collect(summary, located, study);
  print(summary, options.format, streams);
  return summary.is_interrupted ? kInterrupted : kDone;
}

}  // namespace hfta::cli
