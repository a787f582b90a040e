#include "hfta/base/options.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "hfta/base/error.h"

namespace hfta::base {
namespace {

std::optional<double> as_number(const Option& option) {
  if (const auto* whole = std::get_if<std::int64_t>(&option)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&option)) return *real;
  return std::nullopt;
}

std::optional<std::int64_t> as_integer(const Option& option) {
  if (const auto* whole = std::get_if<std::int64_t>(&option)) return *whole;
  const auto* real = std::get_if<double>(&option);
  if (real && std::abs(*real) < 0x1p53 && std::nearbyint(*real) == *real) return static_cast<std::int64_t>(*real);
  return std::nullopt;
}

std::string range(auto least, auto most) {
  using Number = decltype(least);
  const bool below = least == std::numeric_limits<Number>::lowest(), above = most == std::numeric_limits<Number>::max();
  if (below && above) return "";
  if (above) return message(" of at least ", least);
  if (below) return message(" of at most ", most);
  return message(" in [", least, ", ", most, "]");
}

}  // namespace

OptionReader::OptionReader(std::string owner, const Options& options) : owner_(std::move(owner)), options_(options) {}

bool OptionReader::has(const std::string& name) const { return options_.contains(name); }

const Option* OptionReader::find(const std::string& name) {
  known_.push_back(name);
  const auto found = options_.find(name);
  return found == options_.end() ? nullptr : &found->second;
}

void OptionReader::refuse(const std::string& name, const std::string& expected, const Option& got) const {
  throw InvalidArgument(message(owner_, ": expected ", expected, " as \"", name, "\", got ", to_text(got)));
}

bool OptionReader::flag(const std::string& name, bool otherwise) {
  const auto* option = find(name);
  if (!option) return otherwise;
  const auto* value = std::get_if<bool>(option);
  if (!value) refuse(name, "true or false", *option);
  return *value;
}

std::int64_t OptionReader::integer(const std::string& name, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
  const auto* option = find(name);
  if (!option) return otherwise;
  const auto value = as_integer(*option);
  if (!value || *value < least || *value > most) refuse(name, "a whole number" + range(least, most), *option);
  return *value;
}

double OptionReader::number(const std::string& name, double otherwise, double least, double most) {
  const auto* option = find(name);
  if (!option) return otherwise;
  const auto value = as_number(*option);
  if (!value || !std::isfinite(*value) || *value < least || *value > most) refuse(name, "a finite number" + range(least, most), *option);
  return *value;
}

std::string OptionReader::text(const std::string& name, const std::string& otherwise) {
  const auto* option = find(name);
  if (!option) return otherwise;
  const auto* value = std::get_if<std::string>(option);
  if (!value) refuse(name, "a text", *option);
  return *value;
}

std::string OptionReader::word(const std::string& name, const std::string& otherwise, const std::vector<std::string>& allowed) {
  const auto* option = find(name);
  if (!option) return otherwise;
  const auto* value = std::get_if<std::string>(option);
  if (!value || std::ranges::find(allowed, *value) == allowed.end()) refuse(name, "one of " + list(allowed), *option);
  return *value;
}

std::vector<std::int64_t> OptionReader::integers(const std::string& name, std::vector<std::int64_t> otherwise, std::int64_t least) {
  const auto* option = find(name);
  if (!option) return otherwise;
  std::vector<Option> entries;
  if (const auto* values = std::get_if<std::vector<double>>(option)) entries.assign(values->begin(), values->end());
  else entries.push_back(*option);
  std::vector<std::int64_t> result;
  for (const auto& entry : entries) {
    const auto value = as_integer(entry);
    if (!value || *value < least) refuse(name, message("whole numbers of at least ", least), *option);
    result.push_back(*value);
  }
  return result;
}

std::vector<double> OptionReader::numbers(const std::string& name, std::vector<double> otherwise) {
  const auto* option = find(name);
  if (!option) return otherwise;
  if (const auto value = as_number(*option)) return {*value};
  const auto* values = std::get_if<std::vector<double>>(option);
  if (!values) refuse(name, "a list of numbers", *option);
  return *values;
}

void OptionReader::done() const {
  for (const auto& [name, value] : options_)
    HFTA_CHECK(std::ranges::find(known_, name) != known_.end(), owner_, ": expected an option out of ", list(known_), ", got \"", name,
               "\"");
}

std::string to_text(const Option& option) {
  return std::visit(
      [](const auto& value) -> std::string {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) return value ? "true" : "false";
        else if constexpr (std::is_same_v<Value, std::string>) return '"' + value + '"';
        else if constexpr (std::is_arithmetic_v<Value>) return message(value);
        else {
          std::string text;
          for (const auto& entry : value) text += (text.empty() ? "" : ", ") + to_text(Option(entry));
          return '[' + text + ']';
        }
      },
      option);
}

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

}  // namespace hfta::base
