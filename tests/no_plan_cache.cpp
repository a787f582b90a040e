#include <cstdlib>

// Tests neither read nor write the plans that the user's runs have kept.
[[maybe_unused]] static const int kOff = setenv("HFTA_PLAN_CACHE", "off", 1);
