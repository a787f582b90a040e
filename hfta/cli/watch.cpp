#include "hfta/cli/watch.h"

#include <chrono>
#include <mutex>
#include <ostream>
#include <string_view>

#include "hfta/base/log.h"
#include "hfta/cli/interrupt.h"
#include "hfta/cli/terminal.h"

namespace hfta::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Plain lines: one per epoch of an array, one per trial that ends, notes.
class LineWatch : public Watch {
 public:
  explicit LineWatch(std::ostream& out) : out_(out) {}
  void changed(const Board& board) override {
    if (!board.is_stopping || was_stopping_) return;
    was_stopping_ = true;
    note("stopping after this epoch; interrupt again to stop now");
  }
  void epoch_ended(const Board&, const std::string& line) override { note(line); }
  void trial_ended(const Board& board, const TrialRow& trial) override { note(summary_of(board, trial)); }
  void note(const std::string& line) override {
    out_ << line << '\n';
    out_.flush();
  }

 private:
  std::ostream& out_;
  bool was_stopping_ = false;
};

/// The live table; drawn at most ten times a second.
class LiveWatch : public Watch {
 public:
  explicit LiveWatch(int descriptor) : descriptor_(descriptor), block_(descriptor) {
    base::set_log_console([this](std::string_view line) { note(std::string(line)); });
  }
  ~LiveWatch() override {
    base::set_log_console({});
    if (has_board_) draw_now(last_);
  }
  void changed(const Board& board) override {
    const auto now = Clock::now();
    if (has_board_ && now - drawn_ < std::chrono::milliseconds(100) && board.is_stopping == last_.is_stopping && board.phase == last_.phase) return;
    drawn_ = now;
    draw_now(board);
  }
  void epoch_ended(const Board& board, const std::string&) override { draw_now(board); }
  void trial_ended(const Board& board, const TrialRow& trial) override {
    if (trial.state == "failed") note(summary_of(board, trial));
    draw_now(board);
  }
  void note(const std::string& line) override {
    const std::lock_guard lock(mutex_);
    block_.print_above(line);
  }

 private:
  void draw_now(const Board& board) {
    const std::lock_guard lock(mutex_);
    const auto size = terminal_size(descriptor_);
    // One line less than the terminal: the cursor stands below the block.
    block_.show(draw(board, {size.width, size.height - 1, has_colour(descriptor_)}));
    if (&board != &last_) last_ = board;
    has_board_ = true;
  }
  int descriptor_;
  std::mutex mutex_;  // warnings come from workers too
  LiveBlock block_;
  Clock::time_point drawn_{};
  Board last_;
  bool has_board_ = false;
};

}  // namespace

std::unique_ptr<Watch> make_watch(Format format, Streams streams) {
  if (format == Format::Text && streams.terminal >= 0) return std::make_unique<LiveWatch>(streams.terminal);
  return std::make_unique<LineWatch>(format == Format::Text ? streams.out : streams.err);
}

std::string summary_of(const Board& board, const TrialRow& trial) {
  std::string line = "trial " + std::to_string(trial.number) + " " + trial.state + ": " + board.metric + " " + rounded(trial.metric) + ", loss " + rounded(trial.loss);
  const char* before = "; ";
  for (const auto& [name, value] : trial.parameters) {
    line += before + name + " " + value;
    before = ", ";
  }
  if (!trial.reason.empty()) line += " (" + trial.reason + ")";
  return line;
}

}  // namespace hfta::cli
