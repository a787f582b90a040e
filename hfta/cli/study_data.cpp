#include "hfta/cli/study_data.h"

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/std.h>

#include "hfta/base/error.h"
#include "hfta/data/csv.h"
#include "hfta/data/idx.h"

namespace hfta::cli {
namespace {

struct Parts {
  data::Dataset train, test;
};

Parts read_idx_parts(const DataSection& section) {
  const auto part = [&](const std::string& images, const std::string& labels, data::Part which) {
    return images.empty() ? data::read_idx_folder(section.path, which, {}) : data::read_idx_pair(images, labels, {});
  };
  Parts parts{.train = part(section.train_images, section.train_labels, data::Part::Train), .test = {}};
  if (!section.test_images.empty() || section.train_images.empty()) parts.test = part(section.test_images, section.test_labels, data::Part::Test);
  return parts;
}

Parts read_csv_parts(const DataSection& section) {
  data::CsvOptions options{.target = section.target, .classes = true, .header = section.header, .separator = section.separator, .class_names = {}};
  Parts parts{.train = data::read_csv(section.path, options), .test = {}};
  options.class_names = parts.train.names;
  if (!section.test_path.empty()) parts.test = data::read_csv(section.test_path, options);
  return parts;
}

Parts read_parts(const DataSection& section, std::uint64_t seed) {
  if (section.kind == "fashion_mnist" && section.normalize)
    return {data::fashion_mnist(data::Part::Train, section.path), data::fashion_mnist(data::Part::Test, section.path)};
  if (section.kind == "fashion_mnist") return read_idx_parts(section);
  if (section.kind == "idx") return read_idx_parts(section);
  if (section.kind == "csv") return read_csv_parts(section);
  const auto blobs = [&](std::uint64_t items_seed) {
    return data::blobs({.items = section.examples, .shape = section.shape, .classes = section.classes, .spread = section.spread, .seed = items_seed, .centre_seed = seed});
  };
  return {blobs(2 * seed + 1), blobs(2 * seed + 2)};
}

}  // namespace

StudyData load_data(const DataSection& section, std::uint64_t seed) {
  auto parts = read_parts(section, seed);
  const auto items = static_cast<double>(parts.train.size());
  const double share = section.validation < 1 ? section.validation : section.validation / items;
  HFTA_CHECK(share < 1, "cli::StudyData: expected fewer validation examples than the ", parts.train.size(), " training examples, got ", section.validation);
  auto halves = data::split(parts.train, {.fraction = share, .seed = seed});
  if (section.train_limit && *section.train_limit < halves.train.size())
    halves.train = data::split(halves.train, {.fraction = static_cast<double>(*section.train_limit) / static_cast<double>(halves.train.size()), .seed = seed}).held_out;
  HFTA_CHECK(halves.train.size() > 0 && halves.held_out.size() > 0, "cli::StudyData: expected training and validation examples, got ", halves.train.size(), " and ", halves.held_out.size());
  StudyData data{std::move(halves.train), std::move(halves.held_out), std::move(parts.test)};
  if (!section.normalize || section.kind == "fashion_mnist") return data;
  auto scaling = data::scaling_of(data.train);
  // A table's columns have scales of their own; an image's pixels share one.
  if (section.kind == "idx") {
    scaling.mean = data.train.inputs.mean();
    scaling.deviation = data.train.inputs.std().clamp_min(1e-12);
  }
  data.train = data::scaled(data.train, scaling);
  data.validation = data::scaled(data.validation, scaling);
  if (data.test.size() > 0) data.test = data::scaled(data.test, scaling);
  return data;
}

}  // namespace hfta::cli
