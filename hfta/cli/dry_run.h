#pragma once

#include "hfta/cli/commands.h"
#include "hfta/cli/locate.h"
#include "hfta/cli/trial_maker.h"
#include "hfta/tune/resume.h"

namespace hfta::cli {

struct DryRun {
  const Located& located;
  const StudyFile& file;
  const tune::Space& space;
  tune::Sampler& sampler;
  const TrialMaker& maker;
  tune::TrialRequest request;
  Format format;
  bool has_program = false;
};

/// Tells which arrays the sweep would train, by which plan, with how much memory, and what cannot be fused and why. Times real
/// steps, but trains nothing and writes nothing.
int dry_run(const DryRun& run, Streams streams);

}  // namespace hfta::cli
