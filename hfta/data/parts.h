#pragma once

#include <string>
#include <vector>

#include "hfta/base/options.h"
#include "hfta/data/dataset.h"

namespace hfta::data {

/// What a study needs: data to train on, to choose by, and to judge the chosen model by.
struct Parts {
  Dataset train, validation, test;
};

/// The datasets that `load` knows: "blobs", "csv", "fashion-mnist", "idx".
std::vector<std::string> kinds();

/// A dataset by name, its training part split into training and validation.
/// Every kind takes `validation` (fraction held out, 0.1), `seed` (of the split, 0) and `limit` (training items at most; 0: all). Besides:
/// `fashion-mnist`: `folder`. `idx`: `folder`, `mean`, `deviation`.
/// `csv`: `train`, `test` (paths; without `test` the fraction `test_fraction` of the lines), `target`, `task` (classification or regression), `header`,
/// `separator`, `scale` (to mean 0 and deviation 1 of the training part).
/// `blobs`: `items`, `test_items`, `shape`, `classes`, `spread`.
/// @throws InvalidArgument for an unknown kind or option, listing the known ones.
Parts load(const std::string& kind, const base::Options& options);

}  // namespace hfta::data
