#include "hfta/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

namespace hfta::cli {
namespace {

std::atomic<int> hidden_on{-1};  // the descriptor whose cursor is hidden; read by the signal handler

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(descriptor, text.data(), text.size());
    if (written <= 0) return;  // the terminal is gone: nobody watches
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) && kind && *kind && std::string_view(kind) != "dumb";
}

bool has_colour(int descriptor) {
  const char* off = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && !(off && *off);
}

TerminalSize terminal_size(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

LiveBlock::LiveBlock(int descriptor) : descriptor_(descriptor) {
  hidden_on = descriptor;
  write_all(descriptor_, "\033[?25l");
}

LiveBlock::~LiveBlock() { restore_cursor(); }

void LiveBlock::show(const std::vector<std::string>& lines) {
  lines_ = lines;
  redraw({});
}

void LiveBlock::print_above(const std::string& line) { redraw(line + "\033[K\r\n"); }

void LiveBlock::redraw(const std::string& above) {
  std::string text = "\r";
  const int width = terminal_size(descriptor_).width;
  // A terminal that became narrower has wrapped the old lines: they are left above rather than drawn over wrongly.
  if (drawn_ > 0 && width >= drawn_width_) text += "\033[" + std::to_string(drawn_) + "A";
  text += above;
  for (const auto& line : lines_) text += line + "\033[K\r\n";
  write_all(descriptor_, text + "\033[J");
  drawn_ = lines_.size();
  drawn_width_ = width;
}

void restore_cursor() noexcept {
  const int descriptor = hidden_on.exchange(-1);
  if (descriptor >= 0) write_all(descriptor, "\033[?25h");
}

}  // namespace hfta::cli
