#include <unistd.h>

#include <iostream>

#include "hfta/cli/app.h"
#include "hfta/cli/terminal.h"

int main(int argc, char** argv) {
  return hfta::cli::run(argc, argv, {std::cout, std::cerr, hfta::cli::is_terminal(STDOUT_FILENO) ? STDOUT_FILENO : -1});
}
