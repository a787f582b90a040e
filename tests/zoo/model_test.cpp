#include "hfta/zoo/registry.h"
#include "tests/support.h"

namespace model_test {

using namespace hfta::zoo;
using hfta::test::same_bits;
namespace nn = torch::nn;

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const hfta::InvalidArgument& e) {
    return e.what();
  }
  return "nothing thrown";
}

std::shared_ptr<nn::Module> built(const Model& model, std::uint64_t seed) {
  torch::manual_seed(seed);
  return model.build();
}

std::vector<std::string> names_of(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& parameter : module.named_parameters()) names.push_back(parameter.key());
  for (const auto& buffer : module.named_buffers()) names.push_back(buffer.key());
  return names;
}

TEST(MlpTest, IsThePlainSequential) {
  const auto model =
      Registry().make("mlp", {{"hidden", std::vector<double>{7, 5}}, {"activation", "tanh"}, {"dropout", 0.3}}, {{1, 2, 3}, 4});
  const auto module = built(model, 3);
  torch::manual_seed(3);
  nn::Linear first(6, 7), second(7, 5), third(5, 4);
  nn::Sequential plain(nn::Flatten(), first, nn::Tanh(), nn::Dropout(0.3), second, nn::Tanh(), nn::Dropout(0.3), third);
  const auto x = torch::rand({9, 1, 2, 3});
  torch::manual_seed(4);
  const auto got = model.forward(*module, x);
  torch::manual_seed(4);
  EXPECT_TRUE(same_bits(got, plain->forward(x)));
  EXPECT_EQ(names_of(*module), (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.3.weight", "layers.3.bias",
                                                         "layers.6.weight", "layers.6.bias"}));
}

TEST(MlpTest, NormAndActivationsAreChosen) {
  for (const auto* activation : {"relu", "tanh", "gelu", "silu", "leaky_relu"}) {
    const auto model = Registry().make("mlp", {{"hidden", 5}, {"norm", "batch"}, {"activation", activation}}, {{6}, 2});
    const auto module = built(model, 1);
    EXPECT_EQ(module->named_buffers()["layers.1.running_mean"].sizes(), (torch::IntArrayRef{5}));
    EXPECT_EQ(model.forward(*module, torch::rand({3, 6})).sizes(), (torch::IntArrayRef{3, 2})) << activation;
  }
  const auto module = built(Registry().make("mlp", {{"hidden", 5}, {"norm", "layer"}}, {{6}, 2}), 1);
  EXPECT_EQ(module->named_parameters()["layers.1.weight"].sizes(), (torch::IntArrayRef{5}));
}

TEST(MlpTest, WithoutHiddenLayersIsLinear) {
  const auto module = built(Registry().make("mlp", {{"hidden", std::vector<double>{}}}, {{6}, 2}), 1);
  EXPECT_EQ(names_of(*module), (std::vector<std::string>{"layers.0.weight", "layers.0.bias"}));
}

TEST(CnnTest, IsThePlainNetwork) {
  const auto model = Registry().make("cnn", {{"channels", std::vector<double>{3, 5}}, {"dropout", 0.4}}, {{2, 9, 13}, 4});
  const auto module = built(model, 3);
  torch::manual_seed(3);
  const auto options = [](int in, int out) { return nn::Conv2dOptions(in, out, 3).padding(1).bias(false); };
  nn::Conv2d first(options(2, 3)), second(options(3, 5));
  nn::Linear last(5 * 2 * 3, 4);
  nn::Sequential plain(first, nn::BatchNorm2d(3), nn::ReLU(), nn::MaxPool2d(2), second, nn::BatchNorm2d(5), nn::ReLU(), nn::MaxPool2d(2),
                       nn::Flatten(), nn::Dropout(0.4), last);
  const auto x = torch::rand({6, 2, 9, 13});
  torch::manual_seed(4);
  const auto got = model.forward(*module, x);
  torch::manual_seed(4);
  EXPECT_TRUE(same_bits(got, plain->forward(x)));
  EXPECT_EQ(module->named_parameters()["head.1.weight"].sizes(), (torch::IntArrayRef{4, 30}));
  EXPECT_EQ(module->named_buffers()["features.1.running_var"].sizes(), (torch::IntArrayRef{3}));
}

TEST(CnnTest, OptionsChangeTheLayers) {
  const auto model =
      Registry().make("cnn", {{"channels", 4}, {"kernel", 5}, {"batch_norm", false}, {"dropout", 0}, {"hidden", 11}}, {{1, 8, 8}, 3});
  const auto module = built(model, 1);
  EXPECT_EQ(names_of(*module), (std::vector<std::string>{"features.0.weight", "features.0.bias", "head.0.weight", "head.0.bias",
                                                         "head.2.weight", "head.2.bias"}));
  EXPECT_EQ(model.forward(*module, torch::rand({2, 1, 8, 8})).sizes(), (torch::IntArrayRef{2, 3}));
}

TEST(CnnTest, DataThatDoesNotFitIsRefused) {
  EXPECT_EQ(refusal([] {
              Registry().make("cnn", {}, {{784}, 10});
            }),
            "zoo::cnn: expected items of shape [channels, rows, columns], got [784]");
  EXPECT_EQ(refusal([] {
              Registry().make("cnn", {}, {{1, 3, 28}, 10});
            }),
            "zoo::cnn: expected at least 4 rows and columns for 2 poolings by 2, got items of shape [1, 3, 28]");
  EXPECT_EQ(refusal([] {
              Registry().make("cnn", {{"kernel", 4}}, {{1, 28, 28}, 10});
            }),
            "zoo::cnn: expected an odd number as \"kernel\", got 4");
  EXPECT_EQ(refusal([] {
              Registry().make("cnn", {{"channels", std::vector<double>{}}}, {{1, 28, 28}, 10});
            }),
            "zoo::cnn: expected at least one size in \"channels\", got none");
}

TEST(GruTest, LastStatesOfBothDirectionsAreClassified) {
  const auto model = Registry().make("gru", {{"hidden", 5}, {"layers", 2}, {"bidirectional", true}}, {{7, 3}, 4});
  const auto module = built(model, 3);
  torch::manual_seed(3);
  nn::GRU gru(nn::GRUOptions(3, 5).num_layers(2).bidirectional(true).batch_first(true));
  nn::Linear head(10, 4);
  const auto x = torch::rand({6, 7, 3});
  const auto states = std::get<1>(gru->forward(x));
  EXPECT_TRUE(same_bits(model.forward(*module, x), head->forward(torch::cat({states[2], states[3]}, 1))));
}

TEST(GruTest, ImagesAreReadRowByRow) {
  const auto model = Registry().make("gru", {{"hidden", 5}}, {{1, 7, 3}, 4});
  const auto module = built(model, 3);
  const auto x = torch::rand({6, 1, 7, 3});
  EXPECT_TRUE(same_bits(model.forward(*module, x), model.forward(*module, x.squeeze(1))));
}

TEST(GruTest, TokensAreEmbedded) {
  const auto model = Registry().make("gru", {{"hidden", 5}, {"vocabulary", 11}, {"embedding", 3}, {"dropout", 0.5}}, {{7}, 4});
  const auto module = built(model, 3);
  EXPECT_EQ(module->named_parameters()["embedding.weight"].sizes(), (torch::IntArrayRef{11, 3}));
  EXPECT_EQ(model.forward(*module, torch::randint(11, {6, 7}, torch::kLong)).sizes(), (torch::IntArrayRef{6, 4}));
}

TEST(GruTest, DataThatDoesNotFitIsRefused) {
  EXPECT_EQ(refusal([] {
              Registry().make("gru", {}, {{9}, 2});
            }),
            "zoo::gru: expected items of shape [steps, features] or [1, steps, features], or a \"vocabulary\" for token numbers, got [9]");
  EXPECT_EQ(refusal([] {
              Registry().make("gru", {{"vocabulary", 5}}, {{9, 2}, 2});
            }),
            "zoo::gru: expected token numbers of shape [steps] with a vocabulary, got items of shape [9, 2]");
}

TEST(RegistryTest, UnknownNamesListTheKnownOnes) {
  EXPECT_EQ(models(), (std::vector<std::string>{"cnn", "gru", "mlp"}));
  EXPECT_EQ(refusal([] {
              Registry().make("resnet", {}, {{9}, 2});
            }),
            "zoo::Registry: expected a model out of cnn, gru, mlp, got \"resnet\"");
  EXPECT_EQ(refusal([] {
              Registry().make("mlp", {{"width", 3}}, {{9}, 2});
            }),
            "zoo::mlp: expected an option out of hidden, activation, norm, dropout, got \"width\"");
  EXPECT_EQ(refusal([] {
              Registry().make("mlp", {{"dropout", 1.5}}, {{9}, 2});
            }),
            "zoo::mlp: expected a finite number in [0, 1] as \"dropout\", got 1.5");
}

TEST(RegistryTest, BadDataIsRefused) {
  EXPECT_EQ(refusal([] { Registry().make("mlp", {}, {{}, 2}); }), "zoo::mlp: expected items with a shape, got single numbers");
  EXPECT_EQ(refusal([] { Registry().make("mlp", {}, {{3, 0}, 2}); }), "zoo::mlp: expected items with sizes of at least 1, got [3, 0]");
  EXPECT_EQ(refusal([] { Registry().make("mlp", {}, {{3}, 0}); }), "zoo::mlp: expected at least 1 output, got 0");
}

TEST(RegistryTest, OwnFactoryIsUsed) {
  Registry registry;
  registry.add("line", [](hfta::base::OptionReader&, const DataShape& data) {
    return model([=] { return nn::Linear(data.features(), data.outputs); });
  });
  const auto line = registry.make("line", {}, {{3}, 2});
  EXPECT_EQ(line.forward(*line.build(), torch::rand({5, 3})).sizes(), (torch::IntArrayRef{5, 2}));
  EXPECT_EQ(refusal([&] { registry.add("line", {}); }), "zoo::Registry: expected a name and a factory, got no factory for \"line\"");
  EXPECT_EQ(refusal([&] { registry.add("mlp", [](auto&, const auto&) { return Model{}; }); }),
            "zoo::Registry: expected a new name, got \"mlp\", which is taken");
}

TEST(ModelTest, ModuleOfAnotherModelIsRefused) {
  const auto mlp = Registry().make("mlp", {}, {{3}, 2});
  nn::LinearImpl other(3, 2);
  EXPECT_EQ(refusal([&] {
              mlp.forward(other, torch::rand({5, 3}));
            }),
            "zoo::Model: expected a module that this model has built, got another one (torch::nn::LinearImpl)");
}

}  // namespace model_test
