#include "hfta/zoo/plugin.h"

#include <dlfcn.h>

#include <filesystem>

namespace hfta::zoo {

std::map<std::string, Factory> load_plugin(const std::string& path) {
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path, ignored);
  HFTA_CHECK(!path.empty() && std::filesystem::is_regular_file(absolute, ignored), "zoo::load_plugin: expected a shared library, got \"",
             path, std::filesystem::exists(absolute, ignored) ? "\", which is no file" : "\", which is not there");
  // Never closed: modules built by it may live until the end.
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  HFTA_CHECK(library, "zoo::load_plugin: expected a shared library that can be loaded, got: ", dlerror());
  const auto entry = reinterpret_cast<const Plugin* (*)()>(dlsym(library, "hfta_plugin"));
  HFTA_CHECK(entry, "zoo::load_plugin: expected a plug-in (HFTA_MODEL in one of its sources), got \"", path, "\", a library without one");
  const Plugin* plugin = entry();
  HFTA_CHECK(plugin && plugin->format == kPluginFormat && std::string(HFTA_VERSION) == plugin->hfta_version &&
                 std::string(TORCH_VERSION) == plugin->torch_version,
             "zoo::load_plugin: expected a plug-in built for hfta " HFTA_VERSION " and LibTorch " TORCH_VERSION " (format ", kPluginFormat,
             "), got \"", path, '"',
             plugin ? base::message(", built for hfta ", plugin->hfta_version, " and LibTorch ", plugin->torch_version, " (format ",
                                    plugin->format, ')')
                    : "");
  std::map<std::string, Factory> models;
  for (std::size_t i = 0; i < plugin->count; ++i)
    HFTA_CHECK(models.emplace(plugin->entries[i].name, plugin->entries[i].factory).second,
               "zoo::load_plugin: expected different names in \"", path, "\", got \"", plugin->entries[i].name, "\" twice");
  HFTA_CHECK(!models.empty(), "zoo::load_plugin: expected at least one model in \"", path, "\", got none");
  return models;
}

}  // namespace hfta::zoo
