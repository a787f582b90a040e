#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace hfta::base {

enum class LogLevel { Debug, Info, Warning, Error };

/// One line to standard error and, when set, to the log file. Thread-safe.
void log(LogLevel level, std::string_view line);
/// As `log`, but a line that was logged before in this process is left out.
void log_once(LogLevel level, const std::string& line);
/// Lines below this level are left out; `Info` at first.
void set_log_level(LogLevel level);
/// Gives each line to the function instead of standard error (a live display); an empty one stops that.
void set_log_console(std::function<void(std::string_view line)> write);
/// Also appends every line to this file; empty stops that.
/// @throws Error when the file cannot be opened.
void set_log_file(const std::string& path);

}  // namespace hfta::base
