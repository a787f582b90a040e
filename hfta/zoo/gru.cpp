#include <ATen/ops/cat.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "hfta/zoo/builtin.h"

namespace hfta::zoo {
namespace {

namespace nn = torch::nn;

struct GruOptions {
  std::int64_t hidden, layers, vocabulary, embedding;
  bool bidirectional;
  double dropout;
};

struct GruClassifierImpl : nn::Module {
  GruClassifierImpl(std::int64_t features, std::int64_t outputs, const GruOptions& options) : bidirectional(options.bidirectional) {
    if (options.vocabulary > 0) embedding = register_module("embedding", nn::Embedding(options.vocabulary, options.embedding));
    const double between = options.layers > 1 ? options.dropout : 0;
    gru = register_module("gru", nn::GRU(nn::GRUOptions(options.vocabulary > 0 ? options.embedding : features, options.hidden)
                                             .num_layers(options.layers)
                                             .bidirectional(bidirectional)
                                             .dropout(between)
                                             .batch_first(true)));
    if (options.dropout > 0) dropout = register_module("dropout", nn::Dropout(options.dropout));
    head = register_module("head", nn::Linear(options.hidden * (bidirectional ? 2 : 1), outputs));
  }

  at::Tensor forward(const at::Tensor& input) {
    const auto steps = embedding ? embedding->forward(input.to(at::kLong)) : input.dim() == 4 ? input.squeeze(1) : input;
    const auto states = std::get<1>(gru->forward(steps));  // [layers x directions, N, hidden]
    auto last = bidirectional ? at::cat({states.select(0, -2), states.select(0, -1)}, 1) : states.select(0, -1);
    if (dropout) last = dropout->forward(last);
    return head->forward(last);
  }

  bool bidirectional;
  nn::Embedding embedding{nullptr};
  nn::GRU gru{nullptr};
  nn::Dropout dropout{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(GruClassifier);

}  // namespace

Model gru(base::OptionReader& reader, const DataShape& data) {
  const GruOptions options{.hidden = reader.integer("hidden", 64),
                           .layers = reader.integer("layers", 1),
                           .vocabulary = reader.integer("vocabulary", 0, 0),
                           .embedding = reader.integer("embedding", 32),
                           .bidirectional = reader.flag("bidirectional", false),
                           .dropout = reader.number("dropout", 0, 0, 1)};
  const auto& shape = data.input;
  if (options.vocabulary > 0)
    HFTA_CHECK(shape.size() == 1, "zoo::gru: expected token numbers of shape [steps] with a vocabulary, got items of shape ",
               text_of(shape));
  else
    HFTA_CHECK(shape.size() == 2 || (shape.size() == 3 && shape[0] == 1),
               "zoo::gru: expected items of shape [steps, features] or [1, steps, features], or a \"vocabulary\" for token numbers, got ",
               text_of(shape));
  return model([=, features = shape.back(), outputs = data.outputs] { return GruClassifier(features, outputs, options); });
}

}  // namespace hfta::zoo
