#include "hfta/cli/board.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "hfta/cli/table_text.h"

namespace hfta::cli {
namespace {

using Row = std::vector<Cell>;

constexpr std::size_t kFixedColumns = 5;  // trial, state, epoch, loss, metric: always shown

/// Running trials, then finished ones from the best, then those that wait, then the failed.
std::vector<const TrialRow*> by_interest(const Board& board) {
  std::vector<const TrialRow*> rows;
  for (const auto& trial : board.trials) rows.push_back(&trial);
  const auto rank = [](const TrialRow& trial) { return trial.state == "running" ? 0 : trial.state == "waiting" ? 2 : trial.state == "failed" ? 3 : 1; };
  std::stable_sort(rows.begin(), rows.end(), [&](const TrialRow* a, const TrialRow* b) {
    if (rank(*a) != rank(*b)) return rank(*a) < rank(*b);
    if (rank(*a) != 1 || std::isnan(a->metric) || std::isnan(b->metric)) return false;
    return board.maximize ? a->metric > b->metric : a->metric < b->metric;
  });
  return rows;
}

Row header(const Board& board) {
  Row row{{"trial"}, {"state", false}, {"epoch"}, {"loss"}, {board.metric}};
  if (!board.trials.empty())
    for (const auto& [name, value] : board.trials[0].parameters) row.push_back({name, false});
  return row;
}

Row row_of(const Board& board, const TrialRow& trial) {
  const auto number = [](double value) { return std::isnan(value) ? std::string("-") : rounded(value); };
  const bool is_failed = trial.state == "failed";
  Row row{{std::to_string(trial.number)}, {trial.state, false}, {std::to_string(trial.epoch) + "/" + std::to_string(board.epochs)}};
  row.push_back({is_failed ? rounded(trial.loss) : number(trial.loss)});
  row.push_back({number(trial.metric)});
  for (const auto& [name, value] : trial.parameters) row.push_back({value, false});
  return row;
}

std::string progress_text(const Board& board, double share) {
  if (board.is_stopping) return "stopping after this epoch; Ctrl-C again stops now";
  if (!board.phase.empty()) return board.phase;
  const double rate = speed(board);
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "%3.0f %%  %.0f model-steps/s  ", 100 * share, rate);
  std::string text = numbers;
  if (rate > 0) text += duration(static_cast<double>(board.steps_ahead) / rate) + " left";
  return text;
}

std::string progress_line(const Board& board, int width) {
  const auto all = std::max<std::int64_t>(1, board.steps + board.steps_ahead);
  const double share = static_cast<double>(board.steps) / static_cast<double>(all);
  const auto text = progress_text(board, share);
  const int bar = std::clamp(width - static_cast<int>(text.size()) - 3, 0, 40);
  if (bar < 4) return text;
  const auto full = static_cast<std::size_t>(share * bar);
  std::string line(static_cast<std::size_t>(bar) + 3, '.');
  line.replace(1, full, full, '#');
  line.front() = '[';
  line[line.size() - 2] = ']';
  line.back() = ' ';
  return line + text;
}

std::string cut(const std::string& line, int width) { return line.substr(0, static_cast<std::size_t>(std::max(1, width))); }

std::string coloured(const std::string& line, const TrialRow& trial, bool is_best) {
  if (is_best) return "\033[1;32m" + line + "\033[0m";
  if (trial.state == "failed") return "\033[31m" + line + "\033[0m";
  if (trial.state == "waiting") return "\033[2m" + line + "\033[0m";
  return line;
}

}  // namespace

const TrialRow* best_trial(const Board& board) {
  const TrialRow* best = nullptr;
  for (const auto& trial : board.trials) {
    if (std::isnan(trial.metric) || trial.state == "failed") continue;
    if (!best || (board.maximize ? trial.metric > best->metric : trial.metric < best->metric)) best = &trial;
  }
  return best;
}

double speed(const Board& board) { return board.seconds > 0 ? static_cast<double>(board.steps) / board.seconds : 0; }

std::vector<std::string> draw(const Board& board, const Frame& frame) {
  const auto trials = by_interest(board);
  // Title, column names, progress and best take four lines; one more tells what is left out.
  const auto room = static_cast<std::size_t>(std::max(1, frame.height - 5));
  const auto shown = std::min(room, trials.size());
  TextTable table{header(board), {}};
  for (std::size_t i = 0; i < shown; ++i) table.rows.push_back(row_of(board, *trials[i]));
  const auto sizes = column_widths(table, static_cast<std::size_t>(std::max(1, frame.width)), kFixedColumns);
  const auto* best = best_trial(board);

  std::vector<std::string> lines{cut(board.study + (board.plan.empty() ? "" : ": " + board.plan), frame.width)};
  const auto hidden = table.header.size() - sizes.size();
  lines.push_back(cut(line_of(table.header, sizes) + (hidden ? " +" + std::to_string(hidden) : ""), frame.width));
  for (std::size_t i = 0; i < shown; ++i) {
    const auto line = cut(line_of(table.rows[i], sizes), frame.width);
    lines.push_back(frame.has_colour ? coloured(line, *trials[i], trials[i] == best) : line);
  }
  if (shown < trials.size()) lines.push_back(cut("... and " + std::to_string(trials.size() - shown) + " more", frame.width));
  lines.push_back(cut(progress_line(board, frame.width), frame.width));
  if (best) lines.push_back(cut("best so far: trial " + std::to_string(best->number) + ", " + board.metric + " " + rounded(best->metric), frame.width));
  if (lines.size() > static_cast<std::size_t>(std::max(1, frame.height))) lines.erase(lines.begin(), lines.end() - std::max(1, frame.height));
  return lines;
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds) + 0.5);
  char text[40];
  if (whole < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::string rounded(double value) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace hfta::cli
