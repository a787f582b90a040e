#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hfta/cli/value.h"

namespace toml {
inline namespace v3 {
class table;
}
}  // namespace toml

namespace hfta::cli {

/// A table of a TOML file, read key by key. The keys that were asked for are the known ones; `finish()` refuses the rest.
/// Every error is one line with its place: `study.toml:7: [study] trials: expected ..., got ...`.
class TomlTable {
 public:
  /// The whole file's text; `path` names it in errors. @throws InvalidArgument when it is no TOML.
  static TomlTable parse(const std::string& text, const std::string& path);

  /// A sub-table; an absent one is empty.
  TomlTable table(const std::string& key);
  bool has(const std::string& key);
  bool is_table(const std::string& key);
  bool is_array(const std::string& key);
  /// The keys that nothing asked for yet, in alphabetical order.
  std::vector<std::string> other_keys() const;

  std::optional<std::string> text(const std::string& key);
  /// One of the names. @throws InvalidArgument that lists them and suggests the nearest.
  std::optional<std::string> one_of(const std::string& key, const std::vector<std::string>& names);
  std::optional<bool> flag(const std::string& key);
  std::optional<std::int64_t> integer(const std::string& key, std::int64_t least);
  /// A finite number (whole numbers too) in `[least, most]`.
  std::optional<double> number(const std::string& key, double least, double most = std::numeric_limits<double>::infinity());
  /// Whatever scalar or list of scalars stands there. @throws InvalidArgument when the key is absent.
  Value value(const std::string& key);

  /// @throws InvalidArgument naming the first key that nothing asked for, the known keys and the nearest of them.
  void finish() const;
  /// Throws `<file>:<line>: [<table>] <key>: <text>`; the line of the key, or of the table.
  [[noreturn]] void fail(const std::string& key, const std::string& text) const;
  /// `<file>:<line>`, of the key or of the table.
  std::string place(const std::string& key = {}) const;

 private:
  TomlTable(std::shared_ptr<const toml::table> root, const toml::table* table, std::string file, std::string name);
  std::string found(const std::string& key) const;

  std::shared_ptr<const toml::table> root_;
  const toml::table* table_;  ///< Null: absent in the file.
  std::string file_, name_;
  std::set<std::string> known_;
};

}  // namespace hfta::cli
