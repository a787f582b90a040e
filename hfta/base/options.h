#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace hfta::base {

/// A named value as a file, a command line or a caller gives it.
using Option = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;
using Options = std::map<std::string, Option>;

/// Reads named options one by one and then refuses those that nothing asked for, listing the known ones.
class OptionReader {
 public:
  /// @param owner what the messages begin with: "zoo::mlp".
  OptionReader(std::string owner, const Options& options);

  bool has(const std::string& name) const;
  bool flag(const std::string& name, bool otherwise);
  /// A whole number in `[least, most]`; 32.0 counts as 32.
  std::int64_t integer(const std::string& name, std::int64_t otherwise, std::int64_t least = 1,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// A finite number in `[least, most]`.
  double number(const std::string& name, double otherwise, double least = std::numeric_limits<double>::lowest(),
                double most = std::numeric_limits<double>::max());
  std::string text(const std::string& name, const std::string& otherwise);
  /// One of the allowed words.
  std::string word(const std::string& name, const std::string& otherwise, const std::vector<std::string>& allowed);
  /// A list of whole numbers of at least `least`; one number counts as a list of one.
  std::vector<std::int64_t> integers(const std::string& name, std::vector<std::int64_t> otherwise, std::int64_t least = 1);
  std::vector<double> numbers(const std::string& name, std::vector<double> otherwise);

  /// @throws InvalidArgument for the first option that was not read, listing those that were.
  void done() const;

 private:
  const Option* find(const std::string& name);
  [[noreturn]] void refuse(const std::string& name, const std::string& expected, const Option& got) const;
  std::string owner_;
  Options options_;
  std::vector<std::string> known_;
};

/// The value as it would be written: `0.5`, `"relu"`, `[16, 32]`.
std::string to_text(const Option& option);
/// The words with commas between.
std::string list(const std::vector<std::string>& words);

}  // namespace hfta::base
