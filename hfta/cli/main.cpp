#include <unistd.h>

#include <csignal>
#include <iostream>

#include "hfta/cli/app.h"
#include "hfta/cli/terminal.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error that is told, as a full disk is
  return hfta::cli::run(argc, argv, {std::cout, std::cerr, hfta::cli::is_terminal(STDOUT_FILENO) ? STDOUT_FILENO : -1});
}
