#pragma once

#include <string>
#include <vector>

#include "hfta/zoo/model.h"

namespace hfta::zoo {

/// A multi-layer perceptron on flattened items: for each hidden size linear, norm, activation, dropout; then a linear layer.
/// Options: `hidden` (sizes, [128, 128]), `activation` (relu, tanh, gelu, silu, leaky_relu), `norm` (none, batch, layer), `dropout` (0).
Model mlp(base::OptionReader& options, const DataShape& data);

/// A small convolutional network on `[channels, rows, columns]`: for each size convolution, batch norm, ReLU, max pooling by 2;
/// then dropout and a linear layer.
/// Options: `channels` ([16, 32]), `kernel` (odd, 3), `batch_norm` (true), `dropout` (0.25), `hidden` (a linear layer of that size before
/// the last; 0: none).
Model cnn(base::OptionReader& options, const DataShape& data);

/// A GRU over sequences: `[steps, features]`, `[1, steps, features]` or, with a vocabulary, token numbers `[steps]`; dropout and a linear
/// layer on the last states. Options: `hidden` (64), `layers` (1), `bidirectional` (false), `dropout` (0), `vocabulary` (0: the items are
/// no tokens), `embedding` (32).
Model gru(base::OptionReader& options, const DataShape& data);

/// "[1, 28, 28]".
std::string text_of(const std::vector<std::int64_t>& shape);

}  // namespace hfta::zoo
