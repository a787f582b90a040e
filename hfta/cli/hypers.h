#pragma once

#include <string>
#include <vector>

namespace hfta::cli {

/// Optimizers that a study file can name.
std::vector<std::string> optimizer_names();
/// Hyper-parameters of one of them. @throws InvalidArgument that lists the known names.
const std::vector<std::string>& hyper_names(const std::string& optimizer);
/// Whether any optimizer has this hyper-parameter.
bool is_hyper(const std::string& name);

/// What values a hyper-parameter takes.
struct HyperRange {
  double least, most;
  bool is_flag = false;  ///< true or false.
};
HyperRange hyper_range(const std::string& name);

}  // namespace hfta::cli
