// A plug-in that says it was built for another hfta.
#include "hfta/zoo/plugin.h"

extern "C" const hfta::zoo::Plugin* hfta_plugin() {
  static const hfta::zoo::Plugin plugin{hfta::zoo::kPluginFormat + 1, "9.8.7", "1.2.3", 0, nullptr};
  return &plugin;
}
