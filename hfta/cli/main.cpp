#include <iostream>

#include "hfta/cli/app.h"

int main(int argc, char** argv) { return hfta::cli::run(argc, argv, {std::cout, std::cerr}); }
