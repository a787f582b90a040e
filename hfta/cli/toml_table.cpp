#include "hfta/cli/toml_table.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "hfta/base/error.h"
#include "hfta/base/options.h"

namespace hfta::cli {
namespace {

std::string kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return "text";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::array: return "a list";
    case toml::node_type::table: return "a table";
    default: return "a date or time";
  }
}

std::string source_of(const toml::node& node) {
  std::ostringstream text;
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  node.visit([&](const auto& value) {
    if constexpr (toml::is_string<decltype(value)>) text << '\'' << value.get() << '\'';
    else if constexpr (toml::is_floating_point<decltype(value)>) text << written(value.get());
    else if constexpr (toml::is_boolean<decltype(value)>) text << (value.get() ? "true" : "false");
    else if constexpr (toml::is_value<decltype(value)>) text << value.get();
  });
  return text.str();
}

/// The list's items when all are of the type (whole numbers count as numbers).
template <typename T>
std::optional<std::vector<T>> items(const toml::array& list) {
  std::vector<T> values;
  for (const auto& item : list) {
    const bool fits = std::is_same_v<T, std::string> ? item.is_string() : std::is_same_v<T, double> ? item.is_number() : item.is_integer();
    if (!fits) return std::nullopt;
    values.push_back(*item.value<T>());
  }
  return values;
}

}  // namespace

TomlTable::TomlTable(std::shared_ptr<const toml::table> root, const toml::table* table, std::string file, std::string name)
    : root_(std::move(root)), table_(table), file_(std::move(file)), name_(std::move(name)) {}

TomlTable TomlTable::parse(const std::string& text, const std::string& path) {
  try {
    auto root = std::make_shared<const toml::table>(toml::parse(text));
    return {root, root.get(), path, ""};
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(base::message(path, ":", error.source().begin.line, ": no TOML: ", error.description()));
  }
}

std::string TomlTable::place(const std::string& key) const {
  const toml::table* holder = table_ ? table_ : root_.get();
  auto line = holder->source().begin.line;
  if (table_ && !key.empty())
    for (const auto& [name, node] : *table_)
      if (name.str() == key) line = name.source().begin.line ? name.source().begin.line : node.source().begin.line;
  return line && table_ ? base::message(file_, ":", line) : file_;
}

void TomlTable::fail(const std::string& key, const std::string& text) const {
  std::string where = name_.empty() ? "" : "[" + name_ + "] ";
  if (!key.empty()) where += key + ": ";
  throw InvalidArgument(base::message(place(key), ": ", where, text));
}

std::string TomlTable::found(const std::string& key) const {
  const toml::node& node = *table_->get(key);
  return node.is_table() || node.is_array() ? kind_of(node) : source_of(node);
}

bool TomlTable::has(const std::string& key) {
  known_.insert(key);
  return table_ && table_->contains(key);
}

bool TomlTable::is_table(const std::string& key) { return has(key) && table_->get(key)->is_table(); }
bool TomlTable::is_array(const std::string& key) { return has(key) && table_->get(key)->is_array(); }

std::vector<std::string> TomlTable::other_keys() const {
  std::vector<std::string> keys;
  if (table_)
    for (const auto& [name, node] : *table_)
      if (!known_.contains(std::string(name.str()))) keys.emplace_back(name.str());
  return keys;
}

TomlTable TomlTable::table(const std::string& key) {
  const auto name = name_.empty() ? key : name_ + "." + key;
  if (!has(key)) return {root_, nullptr, file_, name};
  const auto* inner = table_->get(key)->as_table();
  if (!inner) fail(key, "expected a table, got " + found(key));
  return {root_, inner, file_, name};
}

std::optional<std::string> TomlTable::text(const std::string& key) {
  if (!has(key)) return std::nullopt;
  const auto* node = table_->get(key)->as_string();
  if (!node) fail(key, "expected text in quotes, got " + found(key));
  if (node->get().empty()) fail(key, "expected text in quotes, got ''");
  return node->get();
}

std::optional<std::string> TomlTable::one_of(const std::string& key, const std::vector<std::string>& names) {
  auto name = text(key);
  if (name && std::find(names.begin(), names.end(), *name) == names.end())
    fail(key, "expected one of " + base::list(names) + ", got '" + *name + "'" + suggestion(*name, names));
  return name;
}

std::optional<bool> TomlTable::flag(const std::string& key) {
  if (!has(key)) return std::nullopt;
  const auto* node = table_->get(key)->as_boolean();
  if (!node) fail(key, "expected true or false, got " + found(key));
  return node->get();
}

std::optional<std::int64_t> TomlTable::integer(const std::string& key, std::int64_t least) {
  if (!has(key)) return std::nullopt;
  const auto* node = table_->get(key)->as_integer();
  if (!node || node->get() < least) fail(key, base::message("expected a whole number of at least ", least, ", got ", found(key)));
  return node->get();
}

std::optional<double> TomlTable::number(const std::string& key, double least, double most) {
  if (!has(key)) return std::nullopt;
  const auto& node = *table_->get(key);
  const auto number = node.is_number() ? node.value<double>() : std::nullopt;
  if (number && std::isfinite(*number) && *number >= least && *number <= most) return number;
  std::string range;
  if (std::isfinite(least) && std::isfinite(most)) range = " in [" + written(least) + ", " + written(most) + "]";
  else if (std::isfinite(least)) range = " of at least " + written(least);
  fail(key, "expected a finite number" + range + ", got " + found(key));
}

Value TomlTable::value(const std::string& key) {
  if (!has(key)) fail(key, "expected a value, got none");
  const auto& node = *table_->get(key);
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* text = node.as_string()) return text->get();
  if (node.is_floating_point()) return *number(key, -INFINITY, INFINITY);
  if (const auto* list = node.as_array()) {
    if (auto whole = items<std::int64_t>(*list)) return *whole;
    if (auto texts = items<std::string>(*list)) return *texts;
    auto numbers = items<double>(*list);
    if (!numbers) fail(key, "expected a list of whole numbers, of numbers or of texts, got a mixed list");
    for (const double number : *numbers)
      if (!std::isfinite(number)) fail(key, "expected finite numbers, got " + written(number));
    return *numbers;
  }
  fail(key, "expected a number, text, true, false or a list, got " + found(key));
}

void TomlTable::finish() const {
  const auto others = other_keys();
  if (others.empty()) return;
  const std::vector<std::string> known(known_.begin(), known_.end());
  const std::string holder = name_.empty() ? "the file" : "[" + name_ + "]";
  throw InvalidArgument(base::message(place(others[0]), ": ", holder, " has no key '", others[0], "'", suggestion(others[0], known), "; known keys: ", base::list(known)));
}

}  // namespace hfta::cli
