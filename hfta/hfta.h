#pragma once

// All that a user needs: `#include <hfta/hfta.h>`. Inside the library each header is included by itself.

#include "hfta/base/error.h"
#include "hfta/base/log.h"
#include "hfta/base/version.h"
#include "hfta/data/csv.h"
#include "hfta/data/dataset.h"
#include "hfta/data/idx.h"
#include "hfta/data/loader.h"
#include "hfta/lanes/state.h"
#include "hfta/lanes/typed_array.h"
#include "hfta/optim/adadelta.h"
#include "hfta/optim/adam.h"
#include "hfta/optim/clip.h"
#include "hfta/optim/schedule.h"
#include "hfta/optim/sgd.h"
#include "hfta/plan/plan.h"
#include "hfta/train/api.h"
#include "hfta/zoo/plugin.h"
#include "hfta/zoo/registry.h"
