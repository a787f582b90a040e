#include "hfta/data/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "hfta/base/error.h"
#include "hfta/base/options.h"

namespace hfta::data {
namespace {

using Fields = std::vector<std::string>;

std::string trimmed(std::string text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(std::find_if_not(text.rbegin(), text.rend(), space).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  return text;
}

// Fields may stand in double quotes, where a doubled quote is one.
Fields fields_of(const std::string& line, char separator) {
  Fields fields{""};
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
    else if (c == '"') quoted = !quoted;
    else if (c == separator && !quoted) fields.emplace_back();
    else fields.back() += c;
  }
  for (auto& field : fields) field = trimmed(field);
  return fields;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

struct Table {
  Fields columns;
  std::vector<Fields> rows;
  std::vector<std::int64_t> lines;  // where each row stands in the file
};

Table read_table(const std::string& path, const CsvOptions& options) {
  std::ifstream file(path);
  std::error_code ignored;
  HFTA_CHECK(file && !std::filesystem::is_directory(path, ignored), "data::csv: expected a readable file \"", path,
             "\", got: ", std::strerror(errno ? errno : EISDIR));
  Table table;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (trimmed(line).empty()) continue;
    auto fields = fields_of(line, options.separator);
    if (table.columns.empty()) {
      table.columns = fields;
      if (options.header) continue;
      for (std::size_t i = 0; i < fields.size(); ++i) table.columns[i] = std::to_string(i);
    }
    HFTA_CHECK(fields.size() == table.columns.size(), "data::csv: expected ", table.columns.size(), " columns in line ", number, " of \"",
               path, "\", got ", fields.size());
    table.rows.push_back(std::move(fields));
    table.lines.push_back(number);
  }
  HFTA_CHECK(!table.rows.empty(), "data::csv: expected at least one line of values in \"", path, "\", got none");
  HFTA_CHECK(table.columns.size() >= 2, "data::csv: expected at least 2 columns (inputs and target) in \"", path, "\", got ",
             table.columns.size(), " (is the separator '", options.separator, "'?)");
  return table;
}

std::size_t target_column(const Table& table, const std::string& target, const std::string& path) {
  if (target.empty()) return table.columns.size() - 1;
  const auto found = std::ranges::find(table.columns, target);
  if (found != table.columns.end()) return found - table.columns.begin();
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), number);
  HFTA_CHECK(error == std::errc() && end == target.data() + target.size() && number < table.columns.size(),
             "data::csv: expected a target out of the columns ", base::list(table.columns), " of \"", path, "\", got \"", target, "\"");
  return number;
}

double number_at(const Table& table, std::size_t row, std::size_t column, const std::string& path) {
  const auto& text = table.rows[row][column];
  const auto value = number_of(text);
  HFTA_CHECK(value, "data::csv: expected a finite number in line ", table.lines[row], ", column ", table.columns[column], " of \"", path,
             "\", got \"", text, '"');
  return *value;
}

// Class names in order: by value where all are numbers, else by text.
Fields classes_of(const Table& table, std::size_t column) {
  Fields names;
  for (const auto& row : table.rows) names.push_back(row[column]);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (std::ranges::all_of(names, [](const auto& name) { return number_of(name).has_value(); }))
    std::ranges::stable_sort(names, {}, [](const auto& name) { return *number_of(name); });
  return names;
}

at::Tensor class_numbers(const Table& table, std::size_t column, const Fields& names, const std::string& path) {
  std::map<std::string, std::int64_t> number;
  for (const auto& name : names) number.emplace(name, static_cast<std::int64_t>(number.size()));
  auto targets = at::empty({static_cast<std::int64_t>(table.rows.size())}, at::kLong);
  auto* out = targets.mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto& text = table.rows[row][column];
    HFTA_CHECK(!text.empty(), "data::csv: expected a class in line ", table.lines[row], ", column ", table.columns[column], " of \"", path,
               "\", got nothing");
    const auto found = number.find(text);
    HFTA_CHECK(found != number.end(), "data::csv: expected a class out of ", base::list(names), " in line ", table.lines[row], " of \"",
               path, "\", got \"", text, '"');
    out[row] = found->second;
  }
  return targets;
}

}  // namespace

Dataset read_csv(const std::string& path, const CsvOptions& options) {
  const auto table = read_table(path, options);
  const auto target = target_column(table, options.target, path);
  const auto items = static_cast<std::int64_t>(table.rows.size()), columns = static_cast<std::int64_t>(table.columns.size());
  Dataset dataset;
  dataset.inputs = at::empty({items, columns - 1}, at::kFloat);
  auto* out = dataset.inputs.mutable_data_ptr<float>();
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    for (std::size_t column = 0; column < table.columns.size(); ++column)
      if (column != target) *out++ = static_cast<float>(number_at(table, row, column, path));

  if (options.classes) {
    dataset.names = options.class_names.empty() ? classes_of(table, target) : options.class_names;
    dataset.classes = static_cast<std::int64_t>(dataset.names.size());
    dataset.targets = class_numbers(table, target, dataset.names, path);
    return dataset;
  }
  dataset.targets = at::empty({items}, at::kFloat);
  auto* values = dataset.targets.mutable_data_ptr<float>();
  for (std::size_t row = 0; row < table.rows.size(); ++row) values[row] = static_cast<float>(number_at(table, row, target, path));
  return dataset;
}

}  // namespace hfta::data
