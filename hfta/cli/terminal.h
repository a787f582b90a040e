#pragma once

#include <string>
#include <vector>

namespace hfta::cli {

/// Whether the descriptor is a terminal that understands cursor movements.
bool is_terminal(int descriptor);
/// Whether colours are wanted there: a terminal, and `NO_COLOR` is not set.
bool has_colour(int descriptor);

struct TerminalSize {
  int width = 80, height = 24;
};
TerminalSize terminal_size(int descriptor);

/// A block of lines at the bottom of a terminal that is drawn over and over; the cursor is hidden meanwhile and shown again
/// at the end, also when the process is stopped by a second interrupt.
class LiveBlock {
 public:
  explicit LiveBlock(int descriptor);
  ~LiveBlock();
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  /// Draws these lines in place of the last ones; each is at most as wide as the terminal.
  void show(const std::vector<std::string>& lines);
  /// A line that stays, above the block.
  void print_above(const std::string& line);

 private:
  void redraw(const std::string& above);
  int descriptor_;
  std::vector<std::string> lines_;
  std::size_t drawn_ = 0;
  int drawn_width_ = 0;
};

/// Shows the cursor again where a live block hides it. Safe in a signal handler.
void restore_cursor() noexcept;

}  // namespace hfta::cli
