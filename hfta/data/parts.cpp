#include "hfta/data/parts.h"

#include <ATen/ops/arange.h>

#include <algorithm>

#include "hfta/base/error.h"
#include "hfta/data/csv.h"
#include "hfta/data/idx.h"

namespace hfta::data {
namespace {

using base::OptionReader;

// What a reader gives before the validation part is held out.
struct Read {
  Dataset train, test;
  bool scale = false;
};

Read read_fashion_mnist(OptionReader& options) {
  const auto folder = options.text("folder", kFashionMnistFolder);
  options.done();
  return {fashion_mnist(Part::Train, folder), fashion_mnist(Part::Test, folder)};
}

Read read_idx_kind(OptionReader& options) {
  const auto folder = options.text("folder", "");
  const ImageOptions images{.mean = options.number("mean", 0), .deviation = options.number("deviation", 1)};
  options.done();
  HFTA_CHECK(!folder.empty(), "data::idx: expected a \"folder\", got none");
  Read read{read_idx_folder(folder, Part::Train, images), read_idx_folder(folder, Part::Test, images)};
  read.train.classes = read.test.classes = std::max(read.train.classes, read.test.classes);
  return read;
}

Read read_csv_kind(OptionReader& options) {
  const auto train = options.text("train", ""), test = options.text("test", "");
  const auto separator = options.text("separator", ",");
  CsvOptions csv{.target = options.text("target", ""),
                 .classes = options.word("task", "classification", {"classification", "regression"}) == "classification",
                 .header = options.flag("header", true)};
  const SplitOptions apart{.fraction = options.number("test_fraction", 0.2), .seed = static_cast<std::uint64_t>(options.integer("seed", 0, 0))};
  const bool scale = options.flag("scale", true);
  options.done();
  HFTA_CHECK(!train.empty(), "data::csv: expected \"train\", the path of a file, got none");
  HFTA_CHECK(separator.size() == 1, "data::csv: expected one character as \"separator\", got \"", separator, '"');
  csv.separator = separator[0];
  auto all = read_csv(train, csv);
  if (test.empty()) {
    auto [rest, held_out] = split(all, apart);
    return {rest, held_out, scale};
  }
  csv.class_names = all.names;
  auto other = read_csv(test, csv);
  HFTA_CHECK(other.input_shape() == all.input_shape(), "data::csv: expected ", all.inputs.size(1) + 1, " columns in \"", test, "\" as in \"", train, "\", got ",
             other.inputs.size(1) + 1);
  return {all, other, scale};
}

Read read_blobs(OptionReader& options) {
  BlobsOptions train{.items = options.integer("items", 1000, 2),
                     .shape = options.integers("shape", {2}),
                     .classes = options.integer("classes", 3, 2),
                     .spread = options.number("spread", 1, 0),
                     .seed = static_cast<std::uint64_t>(options.integer("seed", 0, 0))};
  train.centre_seed = train.seed;
  auto test = train;
  test.items = options.integer("test_items", std::max<std::int64_t>(1, train.items / 5));
  test.seed = train.seed + 1;
  options.done();
  return {blobs(train), blobs(test)};
}

struct Kind {
  const char* name;
  Read (*read)(OptionReader&);
};
constexpr Kind kKinds[] = {{"blobs", read_blobs}, {"csv", read_csv_kind}, {"fashion-mnist", read_fashion_mnist}, {"idx", read_idx_kind}};

}  // namespace

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const auto& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

Parts load(const std::string& kind, const base::Options& options) {
  const auto* found = std::ranges::find(kKinds, kind, [](const Kind& k) { return std::string(k.name); });
  HFTA_CHECK(found != std::end(kKinds), "data::load: expected a dataset out of ", base::list(kinds()), ", got \"", kind, '"');
  OptionReader reader("data::" + kind, options);
  const SplitOptions held_out{.fraction = reader.number("validation", 0.1, 0, 1), .seed = static_cast<std::uint64_t>(reader.integer("seed", 0, 0))};
  const auto limit = reader.integer("limit", 0, 0);
  auto [all, test, scale] = found->read(reader);
  auto [train, validation] = split(all, held_out);
  if (limit > 0 && limit < train.size()) train = subset(train, at::arange(limit, at::kLong));
  if (!scale) return {train, validation, test};
  const auto scaling = scaling_of(train);
  return {scaled(train, scaling), scaled(validation, scaling), scaled(test, scaling)};
}

}  // namespace hfta::data
