#pragma once

#include <map>
#include <string>
#include <vector>

#include "hfta/zoo/model.h"

namespace hfta::zoo {

/// The models of the zoo: "cnn", "gru", "mlp".
std::vector<std::string> models();

/// Models by name: at first those of the zoo; more can be added, one by one or from plug-ins.
class Registry {
 public:
  Registry();

  std::vector<std::string> names() const;
  /// @throws InvalidArgument for a name that is taken.
  void add(const std::string& name, Factory factory);
  /// Adds the models of a plug-in library and returns their names. @throws InvalidArgument as `zoo::load_plugin`, and for a name that is
  /// taken.
  std::vector<std::string> load_plugin(const std::string& path);

  /// @throws InvalidArgument for an unknown model or option, listing the known ones, and where the model does not take such data.
  Model make(const std::string& name, const Options& options, const DataShape& data) const;

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace hfta::zoo
