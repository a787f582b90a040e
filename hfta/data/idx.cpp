#include "hfta/data/idx.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "hfta/base/error.h"

namespace hfta::data {
namespace {

constexpr std::int64_t kUnknown = -1;

std::optional<at::ScalarType> type_of(unsigned char code) {
  switch (code) {
    case 0x08: return at::kByte;
    case 0x09: return at::kChar;
    case 0x0B: return at::kShort;
    case 0x0C: return at::kInt;
    case 0x0D: return at::kFloat;
    case 0x0E: return at::kDouble;
    default: return std::nullopt;
  }
}

// Reads at most one byte more than expected, so that a header with absurd sizes costs no memory.
class Stream {
 public:
  explicit Stream(const std::string& path) : path_(path) {
    std::error_code ignored;
    HFTA_CHECK(!std::filesystem::is_directory(path, ignored), "data::idx: expected an IDX file, got the folder \"", path, "\"");
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    HFTA_CHECK(file_, "data::idx: expected a readable file \"", path, "\", got: ", std::strerror(errno ? errno : ENOMEM));
    gzbuffer(file_.get(), 1 << 18);
  }

  std::vector<unsigned char> read(std::int64_t bytes) {
    constexpr std::int64_t chunk = 1 << 24;
    std::vector<unsigned char> data;
    while (static_cast<std::int64_t>(data.size()) < bytes) {
      const auto before = data.size();
      const auto wanted = std::min<std::int64_t>(chunk, bytes - static_cast<std::int64_t>(before));
      data.resize(before + wanted);
      const int got = gzread(file_.get(), data.data() + before, static_cast<unsigned>(wanted));
      data.resize(before + std::max(got, 0));
      if (got < wanted) {
        check_error(static_cast<std::int64_t>(data.size()));
        break;
      }
    }
    return data;
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  void check_error(std::int64_t read) {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    HFTA_CHECK(code == Z_OK || code == Z_STREAM_END, "data::idx: expected whole compressed data in \"", path_, "\", got an error after ",
               read, " bytes of this part: ",
               code == Z_ERRNO       ? std::strerror(errno)
               : code == Z_BUF_ERROR ? "the file ends too early"
                                     : text);
  }

  std::string path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const auto size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// The values' bytes in all, or kUnknown where they are more than any file holds.
std::int64_t bytes_of(const std::vector<std::int64_t>& sizes, std::int64_t item_bytes) {
  std::int64_t bytes = item_bytes;
  for (const auto size : sizes)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return kUnknown;
  return bytes;
}

void to_native_order(unsigned char* data, std::int64_t bytes, std::int64_t item_bytes) {
  if constexpr (std::endian::native == std::endian::big) return;
  for (std::int64_t at = 0; item_bytes > 1 && at < bytes; at += item_bytes) std::reverse(data + at, data + at + item_bytes);
}

std::string find_file(const std::string& folder, const std::string& stem, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      const auto path = std::filesystem::path(folder) / (stem + separator + kind + ending);
      if (std::filesystem::exists(path)) return path;
    }
  const bool is_folder = std::filesystem::is_directory(folder);
  throw InvalidArgument(base::message(
      "data::idx: expected the ", is_folder ? "file " + stem + "-" + kind + " or " + stem + "-" + kind + ".gz in " : "folder ", '"', folder,
      "\", got none", folder == kFashionMnistFolder ? " (apt-get install dataset-fashion-mnist)" : ""));
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  Stream stream(path);
  const auto magic = stream.read(4);
  HFTA_CHECK(magic.size() == 4 && magic[0] == 0 && magic[1] == 0 && type_of(magic[2]) && magic[3] > 0,
             "data::idx: expected the magic number of an IDX file (0 0 type dimensions) in \"", path, "\", got ",
             magic.size() < 4 ? base::message("only ", magic.size(), " bytes")
                              : base::message(int{magic[0]}, ' ', int{magic[1]}, ' ', int{magic[2]}, ' ', int{magic[3]}));
  const auto header = stream.read(4 * magic[3]);
  HFTA_CHECK(header.size() == 4u * magic[3], "data::idx: expected ", 4 * magic[3], " bytes of sizes in \"", path, "\", got ",
             header.size());
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < magic[3]; ++i) sizes.push_back(big_endian(header.data() + 4 * i));

  auto result_type = *type_of(magic[2]);
  const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(result_type));
  const auto bytes = bytes_of(sizes, item_bytes);
  HFTA_CHECK(bytes != kUnknown, "data::idx: expected sizes that fit into a file in \"", path, "\", got ", shape_text(sizes));
  auto data = stream.read(bytes + 1);
  const auto got = static_cast<std::int64_t>(data.size());
  HFTA_CHECK(got == bytes, "data::idx: expected ", bytes, " bytes of data (", shape_text(sizes), ") in \"", path, "\", got ",
             got > bytes ? "more" : std::to_string(got));
  to_native_order(data.data(), bytes, item_bytes);
  auto result = at::empty(sizes, result_type);
  if (bytes > 0) std::memcpy(result.mutable_data_ptr(), data.data(), bytes);
  return result;
}

Dataset read_idx_pair(const std::string& images, const std::string& labels, const ImageOptions& options) {
  HFTA_CHECK(options.deviation > 0, "data::idx: expected a deviation above 0, got ", options.deviation);
  const auto bytes = read_idx(images), classes = read_idx(labels);
  HFTA_CHECK(bytes.dim() == 3, "data::idx: expected images of 3 dimensions in \"", images, "\", got ", bytes.dim());
  HFTA_CHECK(classes.dim() == 1, "data::idx: expected labels of 1 dimension in \"", labels, "\", got ", classes.dim());
  HFTA_CHECK(bytes.size(0) == classes.size(0), "data::idx: expected as many labels as images, got ", bytes.size(0), " images in \"", images,
             "\" and ", classes.size(0), " labels in \"", labels, "\"");
  HFTA_CHECK(bytes.numel() > 0, "data::idx: expected at least one image in \"", images, "\", got none");
  auto inputs = bytes.to(at::kFloat).unsqueeze(1);
  // Of other types than bytes the values are taken as they are.
  const double scale = bytes.scalar_type() == at::kByte ? 255 : 1;
  inputs.div_(scale).sub_(options.mean).div_(options.deviation);
  auto targets = classes.to(at::kLong);
  Dataset dataset{inputs, targets, targets.max().item().toLong() + 1, {}};
  check(dataset, '"' + labels + '"');
  return dataset;
}

Dataset read_idx_folder(const std::string& folder, Part part, const ImageOptions& options) {
  const std::string stem = part == Part::Train ? "train" : "t10k";
  const auto images = find_file(folder, stem + "-images", "idx3-ubyte"), labels = find_file(folder, stem + "-labels", "idx1-ubyte");
  return read_idx_pair(images, labels, options);
}

Dataset fashion_mnist(Part part, const std::string& folder) {
  auto dataset = read_idx_folder(folder, part, {.mean = 0.2860, .deviation = 0.3530});
  dataset.names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};
  HFTA_CHECK(dataset.classes <= 10, "data::fashion_mnist: expected 10 classes in \"", folder, "\", got ", dataset.classes);
  dataset.classes = 10;
  return dataset;
}

}  // namespace hfta::data
