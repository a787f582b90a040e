#pragma once

#include <string>

namespace hfta::test {

/// The text of the error that the task throws.
template <typename Thrown, typename Task>
std::string error_of(const Task& task) {
  try {
    task();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace hfta::test
