// A plug-in whose model has the name of one in the zoo.
#include "hfta/zoo/builtin.h"
#include "hfta/zoo/plugin.h"

HFTA_MODELS({"other_net", hfta::zoo::mlp}, {"mlp", hfta::zoo::mlp});
