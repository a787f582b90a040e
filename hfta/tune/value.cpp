#include "hfta/tune/value.h"

#include <charconv>
#include <optional>

#include "hfta/tune/json.h"

namespace hfta::tune {
namespace {

std::optional<double> number_of(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
  if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  return std::nullopt;
}

}  // namespace

bool same(const Value& a, const Value& b) {
  const auto x = number_of(a), y = number_of(b);
  return x && y ? *x == *y : a == b;
}

std::string to_json(const Value& value) { return python_json(json_of(value)); }

std::string to_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto* number = std::get_if<double>(&value);
  if (!number) return to_json(value);
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, *number).ptr};
}

}  // namespace hfta::tune
