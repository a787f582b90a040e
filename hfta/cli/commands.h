#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace hfta::cli {

enum class Format { Text, Json };

/// Where a command writes: results to `out`, progress and warnings to `err` unless it is the live table.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  int terminal = -1;  ///< Descriptor of the terminal behind `out`; -1: none.
};

struct SweepOptions {
  std::string study;                    ///< Study file; `resume` also takes a run folder.
  std::optional<std::int64_t> trials;   ///< In all.
  std::optional<std::int64_t> more;     ///< Besides those that the study has.
  bool has_new_space = false;           ///< The space may differ from that of the trials so far.
  bool is_dry_run = false;
  bool has_program = false;             ///< A dry run prints the recorded programs too, with the time of each node.
  bool must_exist = false;              ///< `resume`: there is a study to go on with.
  Format format = Format::Text;
};
int sweep(const SweepOptions& options, Streams streams);

struct QueryOptions {
  std::string study;                    ///< Study file, run folder or SQLite file.
  Format format = Format::Text;
  std::optional<std::int64_t> limit;    ///< `trials`: at most so many rows.
  bool is_sorted = false;               ///< `trials`: from the best, else by number.
};
int status(const QueryOptions& options, Streams streams);
int best(const QueryOptions& options, Streams streams);
int trials(const QueryOptions& options, Streams streams);

struct ExportOptions {
  std::string study;
  std::optional<std::int64_t> trial;    ///< The best one when empty.
  std::string output;                   ///< Default: `trial-N.pt` here.
  Format format = Format::Text;
};
int export_lane(const ExportOptions& options, Streams streams);

}  // namespace hfta::cli
