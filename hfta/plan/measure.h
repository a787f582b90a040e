#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace hfta::plan {

/// Seconds of the process's steady clock.
inline double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// A measured number for people: three digits unless `format` says otherwise.
inline std::string short_number(double value, const char* format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace hfta::plan
