#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hfta/ops/rule.h"
#include "hfta/program/program.h"

namespace hfta::lanes {

/// Where two lanes' programs differ in structure, as one line, or nothing: then they fuse, with one number per lane where numbers differ.
std::optional<std::string> first_difference(const program::Program& a, const program::Program& b);

/// Of two programs of one structure: all numbers and constants are equal too.
bool same_numbers(const program::Program& a, const program::Program& b);

/// An argument that is a number (int, double) and so may differ between lanes that fuse.
bool is_number(const program::Argument& argument);

}  // namespace hfta::lanes
