#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace hfta {

/// Any failure that hfta reports; the message is one line: `<area>::<Type>: expected <what>, got <value>`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller gave something wrong (Python: `ValueError`).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// What was asked is right but cannot be done here (Python: `NotImplementedError`).
class Unsupported : public Error {
 public:
  using Error::Error;
};

namespace base {

/// The parts written one after the other with `operator<<`.
template <typename... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace base
}  // namespace hfta

/// Throws `hfta::InvalidArgument` made of the parts unless the condition holds; the parts are evaluated only then.
#define HFTA_CHECK(condition, ...)                                            \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      throw ::hfta::InvalidArgument(::hfta::base::message(__VA_ARGS__));      \
  } while (false)
