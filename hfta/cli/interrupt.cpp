#include "hfta/cli/interrupt.h"

#include <csignal>
#include <unistd.h>

#include "hfta/cli/terminal.h"

namespace hfta::cli {
namespace {

std::atomic<int> signals{0};
static_assert(std::atomic<int>::is_always_lock_free);  // the handler may touch it
struct sigaction interrupt_before, terminate_before;

void on_signal(int) {
  if (++signals < 2) return;
  restore_cursor();
  constexpr char kLast[] = "\nhfta: stopped; the same command goes on from the last checkpoint\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kLast, sizeof kLast - 1);
  _exit(kInterrupted);
}

}  // namespace

Interrupts::Interrupts() {
  signals = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in progress go on
  sigaction(SIGINT, &action, &interrupt_before);
  sigaction(SIGTERM, &action, &terminate_before);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &interrupt_before, nullptr);
  sigaction(SIGTERM, &terminate_before, nullptr);
}

const std::atomic<int>& Interrupts::count() noexcept { return signals; }

}  // namespace hfta::cli
