#pragma once

#include <string>
#include <vector>

namespace hfta::cli {

/// One field of a table.
struct Cell {
  std::string text;
  bool is_right = true;  ///< Numbers end together, texts begin together.
};

struct TextTable {
  std::vector<Cell> header;
  std::vector<std::vector<Cell>> rows;
};

/// Widths of the columns; only as many columns as fit into `width`, at least the first `always`.
std::vector<std::size_t> column_widths(const TextTable& table, std::size_t width, std::size_t always);
/// One row laid out; columns two spaces apart.
std::string line_of(const std::vector<Cell>& row, const std::vector<std::size_t>& widths);
/// Header and rows, however wide, without spaces at the ends.
std::vector<std::string> lines_of(const TextTable& table);

}  // namespace hfta::cli
