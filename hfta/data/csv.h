#pragma once

#include <string>
#include <vector>

#include "hfta/data/dataset.h"

namespace hfta::data {

struct CsvOptions {
  std::string target{};  ///< The column to predict, by name or number (from 0); by default the last one.
  bool classes = true;   ///< The target is a class: any texts; false: a number.
  bool header = true;    ///< The first line names the columns.
  char separator = ',';
  std::vector<std::string> class_names{};  ///< Known beforehand (from the training part), in the order of their numbers.
};

/// Numeric columns as inputs `[items, columns - 1]` float; the target column as classes (sorted, as numbers where all are numbers) or as
/// float `[items]`.
/// @throws InvalidArgument that names file, line and column for a value that is missing or no finite number, or a line of another length.
Dataset read_csv(const std::string& path, const CsvOptions& options);

}  // namespace hfta::data
