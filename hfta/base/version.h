#pragma once

/// The version of hfta, given here alone: CMake reads it, plug-ins and the command line tell it.
#define HFTA_VERSION "0.1.0"
