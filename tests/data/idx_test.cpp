#include "hfta/data/idx.h"

#include "tests/data/files.h"
#include "tests/support.h"

namespace {

using namespace hfta::data;
using hfta::test::idx_bytes;
using hfta::test::refusal;
using hfta::test::TemporaryFolder;

const std::string kImages = idx_bytes(8, {3, 2, 2}, std::string("\x00\x33\xFF\x01\x02\x03\x04\x05\x06\x07\x08\x09", 12));
const std::string kLabels = idx_bytes(8, {3}, std::string("\x02\x00\x01", 3));

TEST(IdxTest, PlainAndCompressedFilesGiveTheSameValues) {
  const TemporaryFolder folder;
  const auto plain = read_idx(folder.write("a", kImages)), packed = read_idx(folder.write_gzip("a.gz", kImages));
  EXPECT_EQ(plain.sizes(), (torch::IntArrayRef{3, 2, 2}));
  EXPECT_EQ(plain.scalar_type(), torch::kByte);
  EXPECT_EQ(plain[0][1][0].item<int>(), 255);
  EXPECT_TRUE(torch::equal(plain, packed));
}

TEST(IdxTest, LargerTypesAreBigEndian) {
  const TemporaryFolder folder;
  const auto ints = read_idx(folder.write("i", idx_bytes(0x0C, {2}, std::string("\x00\x00\x01\x02\xFF\xFF\xFF\xFE", 8))));
  EXPECT_TRUE(torch::equal(ints, torch::tensor({258, -2}, torch::kInt)));
  const auto floats = read_idx(folder.write("f", idx_bytes(0x0D, {1}, std::string("\x3F\xC0\x00\x00", 4))));
  EXPECT_TRUE(torch::equal(floats, torch::tensor({1.5f})));
  const auto doubles = read_idx(folder.write("d", idx_bytes(0x0E, {1}, std::string("\xC0\x04\x00\x00\x00\x00\x00\x00", 8))));
  EXPECT_TRUE(torch::equal(doubles, torch::tensor({-2.5}, torch::kDouble)));
}

TEST(IdxTest, BytesAreScaledAndNormalised) {
  const TemporaryFolder folder;
  const auto dataset = read_idx_pair(folder.write("i", kImages), folder.write("l", kLabels), {.mean = 0.5, .deviation = 0.25});
  EXPECT_EQ(dataset.inputs.sizes(), (torch::IntArrayRef{3, 1, 2, 2}));
  EXPECT_EQ(dataset.inputs.scalar_type(), torch::kFloat);
  EXPECT_FLOAT_EQ(dataset.inputs[0][0][0][0].item<float>(), -2);
  EXPECT_FLOAT_EQ(dataset.inputs[0][0][0][1].item<float>(), (0.2f - 0.5f) / 0.25f);
  EXPECT_FLOAT_EQ(dataset.inputs[0][0][1][0].item<float>(), 2);
  EXPECT_TRUE(torch::equal(dataset.targets, torch::tensor({2, 0, 1}, torch::kLong)));
  EXPECT_EQ(dataset.classes, 3);
}

TEST(IdxTest, StandardNamesAreFoundPlainOrCompressed) {
  const TemporaryFolder folder;
  folder.write_gzip("train-images-idx3-ubyte.gz", kImages);
  folder.write("train-labels-idx1-ubyte", kLabels);
  folder.write("t10k-images.idx3-ubyte", kImages);
  folder.write("t10k-labels.idx1-ubyte", kLabels);
  EXPECT_EQ(read_idx_folder(folder.path(), Part::Train, {}).size(), 3);
  EXPECT_EQ(read_idx_folder(folder.path(), Part::Test, {}).size(), 3);
}

TEST(IdxErrorTest, MissingThingsAreNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal([&] { read_idx(folder / "none"); }),
            "data::idx: expected a readable file \"" + (folder / "none") + "\", got: No such file or directory");
  EXPECT_EQ(refusal([&] { read_idx(folder.path()); }), "data::idx: expected an IDX file, got the folder \"" + folder.path() + "\"");
  EXPECT_EQ(refusal([&] { read_idx_folder(folder / "none", Part::Train, {}); }),
            "data::idx: expected the folder \"" + (folder / "none") + "\", got none");
  EXPECT_EQ(refusal([&] { read_idx_folder(folder.path(), Part::Test, {}); }),
            "data::idx: expected the file t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz in \"" + folder.path() + "\", got none");
}

TEST(IdxErrorTest, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "hello, world");
  EXPECT_EQ(refusal([&] { read_idx(path); }),
            "data::idx: expected the magic number of an IDX file (0 0 type dimensions) in \"" + path + "\", got 104 101 108 108");
  const auto empty = folder.write("e", "");
  EXPECT_EQ(refusal([&] { read_idx(empty); }),
            "data::idx: expected the magic number of an IDX file (0 0 type dimensions) in \"" + empty + "\", got only 0 bytes");
  const auto header = folder.write("h", kImages.substr(0, 9));
  EXPECT_EQ(refusal([&] { read_idx(header); }), "data::idx: expected 12 bytes of sizes in \"" + header + "\", got 5");
}

TEST(IdxErrorTest, TruncatedDataIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", kImages.substr(0, kImages.size() - 5));
  EXPECT_EQ(refusal([&] { read_idx(path); }), "data::idx: expected 12 bytes of data (3 x 2 x 2) in \"" + path + "\", got 7");
  const auto more = folder.write("m", kImages + "x");
  EXPECT_EQ(refusal([&] { read_idx(more); }), "data::idx: expected 12 bytes of data (3 x 2 x 2) in \"" + more + "\", got more");
  const auto absurd = folder.write("b", idx_bytes(8, {4000000000u, 4000000000u}, "abc"));
  EXPECT_EQ(refusal([&] { read_idx(absurd); }),
            "data::idx: expected sizes that fit into a file in \"" + absurd + "\", got 4000000000 x 4000000000");
}

TEST(IdxErrorTest, TruncatedCompressionIsRefused) {
  const TemporaryFolder folder;
  std::string noise;
  for (int i = 0; i < 4000; ++i) noise += static_cast<char>(i * 2654435761u >> 13);
  const auto whole = folder.write_gzip("a.gz", idx_bytes(8, {4000}, noise));
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) / 2);
  const auto text = refusal([&] { read_idx(whole); });
  EXPECT_TRUE(text.starts_with("data::idx: expected whole compressed data in \"" + whole + "\", got an error after ")) << text;
  EXPECT_TRUE(text.ends_with("the file ends too early")) << text;
}

TEST(IdxErrorTest, LabelsMustFitTheImages) {
  const TemporaryFolder folder;
  const auto images = folder.write("i", kImages), labels = folder.write("l", idx_bytes(8, {2}, "\x01\x01"));
  EXPECT_EQ(refusal([&] { read_idx_pair(images, labels, {}); }),
            "data::idx: expected as many labels as images, got 3 images in \"" + images + "\" and 2 labels in \"" + labels + "\"");
  EXPECT_EQ(refusal([&] { read_idx_pair(labels, labels, {}); }), "data::idx: expected images of 3 dimensions in \"" + labels + "\", got 1");
  EXPECT_EQ(refusal([&] { read_idx_pair(images, images, {}); }), "data::idx: expected labels of 1 dimension in \"" + images + "\", got 3");
}

TEST(FashionMnistTest, DebiansFilesAreRead) {
  if (!std::filesystem::exists(kFashionMnistFolder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const auto test = fashion_mnist(Part::Test);
  EXPECT_EQ(test.inputs.sizes(), (torch::IntArrayRef{10000, 1, 28, 28}));
  EXPECT_EQ(test.classes, 10);
  EXPECT_EQ(test.names[9], "Ankle boot");
  EXPECT_TRUE(torch::equal(torch::bincount(test.targets), torch::full({10}, 1000, torch::kLong)));
  EXPECT_NEAR(test.inputs.mean().item<float>(), 0, 0.01);
  EXPECT_NEAR(test.inputs.std().item<float>(), 1, 0.01);
}

}  // namespace
