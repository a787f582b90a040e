#pragma once

#include <atomic>

namespace hfta::cli {

/// Exit codes of the command.
enum ExitCode { kDone = 0, kFailedRun = 1, kBadUse = 2, kInterrupted = 130 };

/// Takes SIGINT and SIGTERM for a scope. The first asks for a stop after the epoch; the second ends the process at once with
/// `kInterrupted`: what is on disk is whole at any moment, so nothing is lost but the epoch.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether a stop was asked for.
  static bool asked() noexcept { return count() > 0; }
  /// Signals so far.
  static const std::atomic<int>& count() noexcept;
};

}  // namespace hfta::cli
