#include "hfta/tune/json.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

// Stands for a bare word while nlohmann parses; a private-use character keeps it apart from any text people write.
constexpr std::string_view kWordMark = "\xEE\x80\x80hfta:";
constexpr std::string_view kWords[] = {"NaN", "Infinity", "-Infinity"};

double word_value(std::string_view word) {
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return word == "Infinity" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

std::string_view word_of(double number) {
  if (std::isnan(number)) return kWords[0];
  return number > 0 ? kWords[1] : kWords[2];
}

// Python's repr: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
std::string python_number(double number) {
  if (!std::isfinite(number)) return std::string(word_of(number));
  char buffer[64];
  const double size = std::abs(number);
  const auto form = size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, form).ptr;
  std::string text(buffer, end);
  if (form == std::chars_format::fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string python_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true);
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument("tune::Value: expected a text in UTF-8, got other bytes");
  }
}

struct Style {
  bool strict;
  int indent;  // < 0: one line
};

void line(std::string& out, const Style& style, int depth) {
  if (style.indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(style.indent * depth), ' ');
}

void write(std::string& out, const Json& json, const Style& style, int depth) {
  if (json.is_string()) {
    out += python_text(json.get_ref<const std::string&>());
  } else if (json.is_number_float()) {
    const double number = json.get<double>();
    const bool word = style.strict && !std::isfinite(number);
    out += word ? '"' + python_number(number) + '"' : python_number(number);
  } else if (json.is_structured()) {
    const bool object = json.is_object();
    const char* separator = style.indent < 0 ? ", " : ",";
    out += object ? '{' : '[';
    bool first = true;
    for (const auto& item : json.items()) {
      if (!first) out += separator;
      first = false;
      line(out, style, depth + 1);
      if (object) out += python_text(item.key()) + ": ";
      write(out, item.value(), style, depth + 1);
    }
    if (!first) line(out, style, depth);
    out += object ? '}' : ']';
  } else {
    out += json.dump();
  }
}

// Puts every bare word outside a text into quotes, marked.
std::string mark_words(std::string_view text) {
  std::string marked;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      marked += text.substr(i, 2);
      i += 2;
      continue;
    }
    if (c == '"') quoted = !quoted;
    std::string_view found;
    if (!quoted)
      for (const auto word : kWords)
        if (text.substr(i, word.size()) == word) found = word;
    if (found.empty()) {
      marked += c;
      ++i;
    } else {
      ((marked += '"') += kWordMark) += found;
      marked += '"';
      i += found.size();
    }
  }
  return marked;
}

void unmark_words(Json& json) {
  if (json.is_structured()) {
    for (auto& item : json) unmark_words(item);
  } else if (json.is_string()) {
    const std::string_view text = json.get_ref<const std::string&>();
    if (text.starts_with(kWordMark)) json = word_value(text.substr(kWordMark.size()));
  }
}

}  // namespace

std::string python_json(const Json& json) {
  std::string out;
  write(out, json, {false, -1}, 0);
  return out;
}

std::string strict_json(const Json& json) {
  std::string out;
  write(out, json, {true, 2}, 0);
  return out;
}

Json parse_json(std::string_view text, const std::string& what) {
  const bool words = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  auto json = words ? Json::parse(mark_words(text), nullptr, false) : Json::parse(text, nullptr, false);
  HFTA_CHECK(!json.is_discarded(), what, ": expected JSON, got ", text.substr(0, 80));
  if (words) unmark_words(json);
  return json;
}

Json json_of(const Value& value) {
  return std::visit(
      [](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) return nullptr;
        else return v;
      },
      value);
}

Value value_of(const Json& json, const std::string& what) {
  if (json.is_null()) return std::monostate{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  HFTA_CHECK(json.is_string(), what, ": expected a number, a text, true, false or null, got ", python_json(json).substr(0, 80));
  return json.get<std::string>();
}

}  // namespace hfta::tune
