#include "hfta/cli/value.h"

#include <algorithm>
#include <charconv>

namespace hfta::cli {
namespace {

std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(std::int64_t number) { return std::to_string(number); }
std::string text_of(double number) { return written(number); }
std::string text_of(const std::string& text) { return '"' + text + '"'; }
template <typename T>
std::string text_of(const std::vector<T>& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + text_of(item);
  return '[' + text + ']';
}

/// Edits (insert, drop, replace, swap of neighbours) that turn one name into the other.
std::size_t distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<std::size_t>> edits(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i)
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + (from[i - 1] != to[j - 1])});
      const bool is_swap = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swap) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  return edits[from.size()][to.size()];
}

}  // namespace

std::string written(const Value& value) {
  return std::visit([](const auto& held) { return text_of(held); }, value);
}

std::string written(double number) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string suggestion(const std::string& name, const std::vector<std::string>& names) {
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return distance(name, a) < distance(name, b); });
  if (nearest == names.end() || distance(name, *nearest) > std::max<std::size_t>(1, name.size() / 3)) return {};
  return " (did you mean '" + *nearest + "'?)";
}

}  // namespace hfta::cli
