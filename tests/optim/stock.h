#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace hfta::test {

inline bool has_stock_pytorch() {
  const std::string python = HFTA_TEST_PYTHON;
  return !python.empty() && std::system((python + " -c \"import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)\"").c_str()) == 0;
}

/// Runs `stock_optim.py` and returns what it prints.
inline std::string run_stock(const std::string& arguments) {
  const std::string command = std::string(HFTA_TEST_PYTHON) + " " + HFTA_TEST_SCRIPT + " " + arguments;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  std::string text;
  char buffer[4096];
  while (const auto count = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  if (::pclose(pipe) != 0) throw std::runtime_error("failed: " + command);
  return text;
}

}  // namespace hfta::test
