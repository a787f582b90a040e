#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hfta/data/dataset.h"

namespace hfta::data {

/// An array from an IDX file, gzip-compressed or plain, in the file's own type (`uint8`, `int8`, `int16`, `int32`, `float`, `double`).
/// @throws InvalidArgument, naming the file, when it cannot be read, is no IDX file, or holds fewer or more bytes than its sizes say.
at::Tensor read_idx(const std::string& path);

/// How byte images become inputs: `(byte / 255 - mean) / deviation`.
struct ImageOptions {
  double mean = 0;
  double deviation = 1;
};

/// Images `[items, rows, columns]` and labels `[items]` as a dataset with inputs `[items, 1, rows, columns]` float.
/// @throws InvalidArgument when the two files do not fit each other.
Dataset read_idx_pair(const std::string& images, const std::string& labels, const ImageOptions& options);

enum class Part { Train, Test };

/// The standard names in a folder: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-...`; each plain or with `.gz`.
/// @throws InvalidArgument that names the folder and the file that is missing.
Dataset read_idx_folder(const std::string& folder, Part part, const ImageOptions& options);

/// Where Debian's package `dataset-fashion-mnist` puts its files.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST with the names of its ten classes, inputs with mean 0 and deviation 1 over the training part.
Dataset fashion_mnist(Part part, const std::string& folder = kFashionMnistFolder);

}  // namespace hfta::data
