#pragma once

#include <memory>
#include <string>

#include "hfta/cli/board.h"
#include "hfta/cli/commands.h"

namespace hfta::cli {

/// Shows a sweep while it runs: a live table on a terminal, plain lines elsewhere.
class Watch {
 public:
  virtual ~Watch() = default;
  /// Something changed; cheap, may be called at every step.
  virtual void changed(const Board& board) = 0;
  /// An array of trials ended an epoch; `line` says how it went.
  virtual void epoch_ended(const Board& board, const std::string& line) = 0;
  /// A trial ended.
  virtual void trial_ended(const Board& board, const TrialRow& trial) = 0;
  /// A line that stays.
  virtual void note(const std::string& line) = 0;
};

/// Warnings that are logged meanwhile appear among its lines.
std::unique_ptr<Watch> make_watch(Format format, Streams streams);

/// "trial 3 complete: accuracy 0.89, loss 0.3; lr 0.01, optimizer adam".
std::string summary_of(const Board& board, const TrialRow& trial);

}  // namespace hfta::cli
