#include "hfta/cli/table_text.h"

#include <algorithm>
#include <cstdint>

namespace hfta::cli {

std::vector<std::size_t> column_widths(const TextTable& table, std::size_t width, std::size_t always) {
  std::vector<std::size_t> sizes(table.header.size());
  const auto widen = [&](const std::vector<Cell>& row) {
    for (std::size_t i = 0; i < std::min(row.size(), sizes.size()); ++i) sizes[i] = std::max(sizes[i], row[i].text.size());
  };
  widen(table.header);
  for (const auto& row : table.rows) widen(row);
  std::size_t used = 0, columns = 0;
  for (; columns < sizes.size(); ++columns) {
    used += sizes[columns] + (columns ? 2 : 0);
    if (columns >= always && used > width) break;
  }
  sizes.resize(columns);
  return sizes;
}

std::string line_of(const std::vector<Cell>& row, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const auto cell = i < row.size() ? row[i] : Cell{};
    const std::string gap(widths[i] - std::min(widths[i], cell.text.size()), ' ');
    if (i) line += "  ";
    line += cell.is_right ? gap + cell.text : cell.text + gap;
  }
  return line;
}

std::vector<std::string> lines_of(const TextTable& table) {
  const auto widths = column_widths(table, SIZE_MAX, 0);
  std::vector<std::string> lines{line_of(table.header, widths)};
  for (const auto& row : table.rows) lines.push_back(line_of(row, widths));
  for (auto& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace hfta::cli
