#include "hfta/cli/app.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <map>
#include <ostream>
#include <string>

#include "hfta/base/error.h"
#include "hfta/base/options.h"
#include "hfta/base/version.h"
#include "hfta/cli/interrupt.h"
#include "hfta/cli/value.h"

namespace hfta::cli {
namespace {

constexpr auto kExitCodes = "Exit codes: 0 done, 1 the run failed, 2 bad use or a bad study file, 130 interrupted (state is saved: the same command goes on).";

struct Commands {
  SweepOptions sweep, resume, plan;
  QueryOptions status, best, trials;
  ExportOptions exported;
  std::function<int(Streams)> chosen;
};

void add_format(CLI::App& command, Format& format) {
  static const std::map<std::string, Format> kFormats{{"text", Format::Text}, {"json", Format::Json}};
  command.add_option("-f,--format", format, "text (default) for people, json for machines")
      ->transform(CLI::CheckedTransformer(kFormats).description(""))
      ->type_name("FORMAT");
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& what, const std::string& examples) {
  auto& command = *app.add_subcommand(name, what);
  command.footer("Examples:\n" + examples + "\n" + kExitCodes);
  return command;
}

void add_sweep(CLI::App& app, Commands& commands) {
  auto& options = commands.sweep;
  auto& command = add_command(app, "sweep", "Train the trials of a study file; the same command again goes on where it stopped",
                              "  hfta sweep study.toml                what the file says; 0 new trials when all are done\n"
                              "  hfta sweep study.toml --trials 100   100 trials in all, those that exist included\n"
                              "  hfta sweep study.toml --more 20      20 trials besides those that exist\n"
                              "  hfta sweep study.toml --dry-run      the plan, the memory it needs, what cannot be fused and why\n"
                              "  hfta sweep study.toml -f json        the summary as JSON, progress on standard error\n");
  command.add_option("FILE", options.study, "study file (TOML)")->required()->type_name("");
  auto* total = command.add_option("--trials", options.trials, "trials in all, instead of the file's number")->check(CLI::PositiveNumber.description(""))->type_name("N");
  command.add_option("--more", options.more, "trials besides those that the study has")->check(CLI::PositiveNumber.description(""))->type_name("N")->excludes(total);
  command.add_flag("--new-space", options.has_new_space, "go on although [space] differs from that of the trials so far");
  command.add_flag("--dry-run", options.is_dry_run, "print the plan, its memory and what cannot be fused; train nothing");
  add_format(command, options.format);
  command.callback([&commands] { commands.chosen = [&commands](Streams streams) { return sweep(commands.sweep, streams); }; });
}

void add_resume(CLI::App& app, Commands& commands) {
  auto& options = commands.resume;
  options.must_exist = true;
  auto& command = add_command(app, "resume", "Go on with a study that was stopped, from its last checkpoints",
                              "  hfta resume study.toml\n"
                              "  hfta resume runs/study          the study file kept in the run folder\n"
                              "  hfta resume study.toml --more 8 and 8 trials besides\n");
  command.add_option("STUDY", options.study, "study file or run folder")->required()->type_name("");
  command.add_option("--more", options.more, "trials besides those that the study has")->check(CLI::PositiveNumber.description(""))->type_name("N");
  add_format(command, options.format);
  command.callback([&commands] { commands.chosen = [&commands](Streams streams) { return sweep(commands.resume, streams); }; });
}

void add_plan(CLI::App& app, Commands& commands) {
  auto& options = commands.plan;
  options.is_dry_run = true;
  auto& command = add_command(app, "plan", "Tell how a sweep would run: arrays, plans, memory, what cannot be fused; trains nothing",
                              "  hfta plan study.toml             the same as hfta sweep study.toml --dry-run\n"
                              "  hfta plan study.toml --program   and the recorded step, node by node with its time\n"
                              "  hfta plan study.toml -f json\n");
  command.add_option("FILE", options.study, "study file (TOML)")->required()->type_name("");
  command.add_flag("--program", options.has_program, "print the programs that a step was recorded as, with the time of each node");
  add_format(command, options.format);
  command.callback([&commands] { commands.chosen = [&commands](Streams streams) { return sweep(commands.plan, streams); }; });
}

using Query = int (*)(const QueryOptions&, Streams);
CLI::App& add_query(CLI::App& app, Commands& commands, QueryOptions& options, Query query, const std::string& name, const std::string& what, const std::string& examples) {
  auto& command = add_command(app, name, what, examples);
  command.add_option("STUDY", options.study, "study file, run folder or SQLite file")->required()->type_name("");
  add_format(command, options.format);
  command.callback([&commands, &options, query] { commands.chosen = [&options, query](Streams streams) { return query(options, streams); }; });
  return command;
}

void add_export(CLI::App& app, Commands& commands) {
  auto& options = commands.exported;
  auto& command = add_command(app, "export", "Write a trial's weights as a plain PyTorch state dict",
                              "  hfta export study.toml                    the best trial, to trial-N.pt\n"
                              "  hfta export study.toml 7 -o model.pt\n"
                              "  python -c \"import torch; print(torch.load('model.pt', weights_only=True).keys())\"\n");
  command.add_option("STUDY", options.study, "study file, run folder or SQLite file")->required()->type_name("");
  command.add_option("TRIAL", options.trial, "number of the trial; default: the best")->check(CLI::NonNegativeNumber.description(""))->type_name("");
  command.add_option("-o,--output", options.output, "file to write; default: trial-N.pt")->type_name("FILE");
  add_format(command, options.format);
  command.callback([&commands] { commands.chosen = [&commands](Streams streams) { return export_lane(commands.exported, streams); }; });
}

void add_all(CLI::App& app, Commands& commands) {
  add_sweep(app, commands);
  add_resume(app, commands);
  add_query(app, commands, commands.status, status, "status", "Tell how far a study is",
            "  hfta status study.toml\n  hfta status runs/study -f json\n");
  add_query(app, commands, commands.best, best, "best", "Print the best trial, its parameters and where its weights lie",
            "  hfta best study.toml\n  hfta best study.toml -f json\n");
  auto& list = add_query(app, commands, commands.trials, trials, "trials", "List the trials",
                         "  hfta trials study.toml\n  hfta trials study.toml --sort --limit 5\n  hfta trials study.toml -f json\n");
  list.add_flag("--sort", commands.trials.is_sorted, "from the best; default: by number");
  list.add_option("--limit", commands.trials.limit, "at most so many")->check(CLI::PositiveNumber.description(""))->type_name("N");
  add_export(app, commands);
  add_plan(app, commands);
}

/// Misspelt commands get a suggestion, which the parser does not give.
void check_command(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (argc < 2 || argv[1][0] == '-' || std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  throw InvalidArgument(base::message("no command '", argv[1], "'", suggestion(argv[1], names), "; commands: ", base::list(names)));
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (auto& letter : text)
    if (letter == '\n') letter = ' ';
  return text;
}

/// LibTorch's messages carry a backtrace after their first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int parse(CLI::App& app, int argc, const char* const* argv, Streams streams) {
  try {
    app.parse(argc, const_cast<char**>(argv));
    return -1;
  } catch (const CLI::CallForVersion&) {
    streams.out << "hfta " HFTA_VERSION "\n";
    return kDone;
  } catch (const CLI::CallForHelp&) {
    streams.out << app.help();
    return kDone;
  } catch (const CLI::ParseError& error) {
    const bool has_command = argc > 1 && argv[1][0] != '-';
    streams.err << "hfta: " << one_line(error.what()) << "; see 'hfta " << (has_command ? std::string(argv[1]) + " " : "") << "--help'\n";
    return kBadUse;
  }
}

}  // namespace

int run(int argc, const char* const* argv, Streams streams) {
  CLI::App app{"hfta trains many variants of a model as one: sweeps, seeds, ensembles for about the cost of one run."};
  app.name("hfta");
  app.set_version_flag("--version", "hfta " HFTA_VERSION);
  app.require_subcommand(1);
  app.footer(std::string("'hfta COMMAND --help' tells more, with examples.\n\n") + kExitCodes);
  Commands commands;
  add_all(app, commands);
  try {
    if (argc < 2) return streams.out << app.help(), kBadUse;
    check_command(app, argc, argv);
    if (const int code = parse(app, argc, argv, streams); code >= 0) return code;
    const int code = commands.chosen(streams);
    streams.out.flush();
    if (!streams.out) throw Error("expected a standard output that can be written");
    return code;
  } catch (const InvalidArgument& error) {
    streams.err << "hfta: " << error.what() << '\n';
    return kBadUse;
  } catch (const std::exception& error) {
    streams.err << "hfta: " << first_line(error.what()) << '\n';
    return kFailedRun;
  }
}

}  // namespace hfta::cli
