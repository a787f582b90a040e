#pragma once

#include <torch/version.h>

#include <cstddef>
#include <map>
#include <string>

#include "hfta/base/version.h"
#include "hfta/zoo/model.h"

namespace hfta::zoo {

/// Grows whenever a plug-in built before can no longer be read.
inline constexpr unsigned kPluginFormat = 1;

/// What a plug-in tells of itself. The first three fields stay where they are in every format: they are read before the rest is trusted.
struct Plugin {
  struct Entry {
    const char* name;
    Model (*factory)(base::OptionReader& options, const DataShape& data);
  };
  unsigned format;
  const char* hfta_version;
  const char* torch_version;
  std::size_t count;
  const Entry* entries;
};

/// Loads a shared library that was made with `HFTA_MODEL`, and gives its models by name. The library stays loaded until the process ends.
/// @throws InvalidArgument, naming the file, when it is not there, cannot be loaded, is no plug-in, or was built for another hfta or
/// LibTorch.
std::map<std::string, Factory> load_plugin(const std::string& path);

}  // namespace hfta::zoo

/// Makes the library a plug-in with these models: `HFTA_MODELS({"small", make_small}, {"large", make_large})`. Once in a library.
#define HFTA_MODELS(...)                                                                                                                   \
  extern "C" __attribute__((visibility("default"))) const ::hfta::zoo::Plugin* hfta_plugin() {                                             \
    static const ::hfta::zoo::Plugin::Entry entries[] = {__VA_ARGS__};                                                                     \
    static const ::hfta::zoo::Plugin plugin{::hfta::zoo::kPluginFormat, HFTA_VERSION, TORCH_VERSION, sizeof(entries) / sizeof(entries[0]), \
                                            entries};                                                                                      \
    return &plugin;                                                                                                                        \
  }                                                                                                                                        \
  static_assert(true)

/// A plug-in with one model: `HFTA_MODEL("my_net", make_my_net)`.
#define HFTA_MODEL(name, factory) HFTA_MODELS({name, factory})
