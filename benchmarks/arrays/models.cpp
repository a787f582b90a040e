#include "models.h"

#include "hfta/base/error.h"

namespace hfta::bench {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr std::int64_t kClasses = 10;

struct Mlp : nn::Module {
  nn::Linear one{nullptr}, two{nullptr}, three{nullptr};
  Mlp(std::int64_t inputs, std::int64_t hidden)
      : one(register_module("one", nn::Linear(inputs, hidden))),
        two(register_module("two", nn::Linear(hidden, hidden))),
        three(register_module("three", nn::Linear(hidden, kClasses))) {}
  Tensor forward(const Tensor& x) { return three(torch::relu(two(torch::relu(one(x))))); }
};

/// 28x28 images; two convolutions of 3x3, each with ReLU and pooling.
struct Cnn : nn::Module {
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)))};
  nn::Conv2d two{register_module("two", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)))};
  nn::Linear head{register_module("head", nn::Linear(32 * 49, kClasses))};
  Tensor forward(const Tensor& x) {
    const auto y = torch::max_pool2d(torch::relu(one(x)), 2);
    return head(torch::max_pool2d(torch::relu(two(y)), 2).flatten(1));
  }
};

struct LeNet : nn::Module {
  nn::Conv2d one{register_module("one", nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)))};
  nn::Conv2d two{register_module("two", nn::Conv2d(nn::Conv2dOptions(6, 16, 5)))};
  nn::Linear three{register_module("three", nn::Linear(400, 120))}, four{register_module("four", nn::Linear(120, 84))};
  nn::Linear head{register_module("head", nn::Linear(84, kClasses))};
  Tensor forward(const Tensor& x) {
    const auto y = torch::max_pool2d(torch::relu(one(x)), 2);
    const auto z = torch::max_pool2d(torch::relu(two(y)), 2).flatten(1);
    return head(torch::relu(four(torch::relu(three(z)))));
  }
};

struct Gru : nn::Module {
  nn::GRU gru{register_module("gru", nn::GRU(nn::GRUOptions(16, 32).batch_first(true)))};
  nn::Linear head{register_module("head", nn::Linear(32, kClasses))};
  Tensor forward(const Tensor& x) { return head(std::get<0>(gru->forward(x)).select(1, -1)); }
};

/// Two layers of width 64 over 1000 tokens, mean over the sequence.
struct Transformer : nn::Module {
  nn::Embedding embedding{register_module("embedding", nn::Embedding(1000, 64))};
  nn::TransformerEncoderLayer one{register_module("one", layer())}, two{register_module("two", layer())};
  nn::Linear head{register_module("head", nn::Linear(64, kClasses))};
  static nn::TransformerEncoderLayer layer() {
    return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(64, 4).dim_feedforward(128).dropout(0));
  }
  Tensor forward(const Tensor& tokens) { return head(two(one(embedding(tokens.t()))).mean(0)); }
};

struct Block : nn::Module {
  nn::Conv2d one, two;
  nn::BatchNorm2d norm_one, norm_two;
  nn::Sequential shortcut;
  Block(std::int64_t from, std::int64_t to, std::int64_t stride)
      : one(register_module("one", nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(stride).padding(1).bias(false)))),
        two(register_module("two", nn::Conv2d(nn::Conv2dOptions(to, to, 3).padding(1).bias(false)))),
        norm_one(register_module("norm_one", nn::BatchNorm2d(to))),
        norm_two(register_module("norm_two", nn::BatchNorm2d(to))) {
    if (stride != 1 || from != to)
      shortcut = nn::Sequential(nn::Conv2d(nn::Conv2dOptions(from, to, 1).stride(stride).bias(false)), nn::BatchNorm2d(to));
    register_module("shortcut", shortcut);
  }
  Tensor forward(const Tensor& x) {
    const auto y = norm_two(two(torch::relu(norm_one(one(x)))));
    return torch::relu(y + (shortcut->is_empty() ? x : shortcut->forward(x)));
  }
};

/// ResNet-18 in its CIFAR form.
struct ResNet : nn::Module {
  nn::Conv2d stem{register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 64, 3).padding(1).bias(false)))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(64))};
  nn::Sequential blocks;
  nn::Linear head{nullptr};
  ResNet() {
    std::int64_t from = 64;
    for (const auto& [to, stride] : {std::pair{64, 1}, {128, 2}, {256, 2}, {512, 2}}) {
      blocks->push_back(Block(from, to, stride));
      blocks->push_back(Block(to, to, 1));
      from = to;
    }
    register_module("blocks", blocks);
    head = register_module("head", nn::Linear(512, kClasses));
  }
  Tensor forward(const Tensor& x) { return head(blocks->forward(torch::relu(norm(stem(x)))).mean({2, 3})); }
};

using Draw = std::function<Tensor(std::int64_t)>;

template <typename Net, typename... Arguments>
Workload make(std::string name, Draw inputs, Arguments... arguments) {
  return {std::move(name), [=] { return std::make_shared<Net>(arguments...); },
          [](nn::Module& net, const Tensor& x) { return static_cast<Net&>(net).forward(x); },
          [inputs](std::int64_t batch) {
            auto x = inputs(batch);
            return std::pair{x, torch::randint(kClasses, {batch})};
          }};
}

Draw normal(std::vector<std::int64_t> shape) {
  return [shape](std::int64_t batch) {
    auto sizes = shape;
    sizes.insert(sizes.begin(), batch);
    return torch::randn(sizes);
  };
}

}  // namespace

const Workload& workload(const std::string& name) {
  static const std::vector<Workload> all{
      make<Mlp>("mlp-2-16", normal({2}), 2, 16),
      make<Mlp>("mlp-784-32", normal({784}), 784, 32),
      make<Mlp>("mlp-784-128", normal({784}), 784, 128),
      make<Mlp>("mlp-784-512", normal({784}), 784, 512),
      make<Cnn>("cnn-16-32", normal({1, 28, 28})),
      make<LeNet>("lenet5", normal({1, 28, 28})),
      make<Gru>("gru", normal({10, 16})),
      make<Transformer>("transformer", [](std::int64_t batch) { return torch::randint(1000, {batch, 32}); }),
      make<ResNet>("resnet18", normal({3, 32, 32})),
  };
  std::string known;
  for (const auto& one : all) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + one.name;
  }
  throw InvalidArgument(base::message("bench::workload: expected one of ", known, ", got \"", name, '"'));
}

}  // namespace hfta::bench
