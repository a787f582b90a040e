#include <torch/csrc/jit/serialization/pickle.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "hfta/base/error.h"
#include "tests/optim/models.h"
#include "tests/optim/stock.h"

namespace hfta::test {
namespace state_dict_test {

using Dict = c10::impl::GenericDict;
using Make = std::function<std::unique_ptr<optim::Optimizer>(lanes::ArrayBase&)>;

struct Case {
  std::string name, of_class;
  Make make;
  bool nesterov = false;
};

std::vector<Case> cases() {
  return {
      {"sgd", "SGD", [](auto& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = {0.1, 0.02}, .weight_decay = 0.1}); }},
      {"momentum", "SGD", [](auto& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = {0.1, 0.02}, .momentum = {0.9, 0.5}, .dampening = 0.1, .groups = {optim::without_decay()}}); }},
      {"nesterov", "SGD", [](auto& a) { return std::make_unique<optim::SGD>(a, optim::SGDOptions{.lr = {0.1, 0.02}, .momentum = 0.9, .nesterov = true}); }, true},
      {"adam", "Adam", [](auto& a) { return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = {0.1, 0.02}, .beta1 = {0.8, 0.7}, .weight_decay = 0.1, .groups = {optim::without_decay()}}); }},
      {"amsgrad", "Adam", [](auto& a) { return std::make_unique<optim::Adam>(a, optim::AdamOptions{.lr = {0.1, 0.02}, .amsgrad = true}); }},
      {"adamw", "AdamW", [](auto& a) { return std::make_unique<optim::AdamW>(a, optim::AdamWOptions{.lr = {0.1, 0.02}, .weight_decay = 0.2}); }},
      {"adadelta", "Adadelta", [](auto& a) { return std::make_unique<optim::Adadelta>(a, optim::AdadeltaOptions{.lr = {0.1, 0.02}, .rho = {0.9, 0.8}, .weight_decay = 0.2}); }},
  };
}

c10::impl::GenericList list_of(const std::vector<torch::Tensor>& tensors) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& t : tensors) list.push_back(t.defined() ? c10::IValue(t.detach().clone()) : c10::IValue());
  return list;
}

/// What stock PyTorch needs to go on from lane 1, its parameters in the optimizer's order of groups.
c10::IValue handover(const Case& c, optim::Optimizer& optimizer, const std::vector<std::vector<torch::Tensor>>& gradients) {
  const auto& array = optimizer.array();
  Dict result(c10::StringType::get(), c10::AnyType::get());
  c10::impl::GenericList trainable(c10::AnyType::get()), groups(c10::AnyType::get()), steps(c10::AnyType::get());
  for (const auto& p : array.parameters()) trainable.push_back(p.trainable);
  for (std::size_t g = 0; g < optimizer.groups(); ++g) {
    c10::impl::GenericList members(c10::AnyType::get());
    for (std::size_t p = 0; p < array.parameters().size(); ++p)
      if (optimizer.group_of_parameters()[p] == g) members.push_back(static_cast<std::int64_t>(p));
    groups.push_back(members);
  }
  for (const auto& step : gradients) {
    std::vector<torch::Tensor> lane;
    for (const auto& g : step) lane.push_back(g.defined() ? g[1] : g);
    steps.push_back(list_of(lane));
  }
  result.insert("class", c.of_class);
  result.insert("nesterov", c.nesterov);
  result.insert("parameters", list_of(array.lane_parameters(1)));
  result.insert("trainable", trainable);
  result.insert("groups", groups);
  result.insert("state", optimizer.lane_state_dict(1));
  result.insert("gradients", steps);
  return result;
}

void write(const std::filesystem::path& path, const c10::IValue& value) {
  const auto bytes = torch::pickle_save(value);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

Dict read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::pickle_load(bytes).toGenericDict();
}

/// An array and its optimizer after three steps, and the gradients of three further ones.
struct Trained {
  Array<OddNet> array = odd_array(2);
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<std::vector<torch::Tensor>> further;

  explicit Trained(const Make& make) : optimizer(make(array)) {
    torch::manual_seed(5);
    for (int step = 0; step < 3; ++step) optimizer->update(0, 2, random_gradients(array));
    for (int step = 0; step < 3; ++step) further.push_back(random_gradients(array));
  }
  void go_on() {
    for (const auto& gradients : further) optimizer->update(0, 2, gradients);
  }
};

TEST(StateDictTest, GoesToStockPyTorchAndBack) {
  if (!has_stock_pytorch()) GTEST_SKIP() << "no Python with torch";
  const auto folder = std::filesystem::temp_directory_path() / ("hfta_optim_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const auto& c : cases()) {
    Trained run(c.make);
    write(folder / (c.name + ".in.pt"), handover(c, *run.optimizer, run.further));
  }
  run_stock("optimizers " + folder.string());
  for (const auto& c : cases()) {
    Trained run(c.make);
    run.go_on();
    const auto stock = read(folder / (c.name + ".out.pt"));
    const auto parameters = stock.at("parameters").toList();
    ASSERT_EQ(parameters.size(), run.array.parameters().size());
    for (std::size_t p = 0; p < parameters.size(); ++p)
      EXPECT_TRUE(close(run.array.lane_parameters(1)[p], parameters.get(p).toTensor())) << c.name << ", " << run.array.parameters()[p].name;

    // Stock's state dict, lists for tuples or not, loads into another lane, which then goes on as lane 1 does.
    auto back = odd_array(2);
    const auto optimizer = c.make(back);
    torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < parameters.size(); ++p) back.lane_parameters(0)[p].copy_(run.array.lane_parameters(1)[p]);
    optimizer->load_lane_state_dict(0, stock.at("state"));
    for (const auto& name : optimizer->hyper_names())
      for (std::size_t g = 0; g < optimizer->groups(); ++g) EXPECT_EQ(optimizer->get(name, 0, g), run.optimizer->get(name, 1, g)) << c.name << " " << name;
    EXPECT_EQ(optimizer->steps(0), c.of_class == "SGD" ? 0 : 6);
    for (const auto& gradients : run.further) {
      run.optimizer->update(1, 1, lanes_of(gradients, 1, 1));
      optimizer->update(0, 1, lanes_of(gradients, 1, 1));
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) EXPECT_TRUE(close(back.lane_parameters(0)[p], run.array.lane_parameters(1)[p])) << c.name;
  }
  std::filesystem::remove_all(folder);
}

TEST(StateDictTest, ARoundTripChangesNoBit) {
  for (const auto& c : cases()) {
    Trained run(c.make);
    auto other = odd_array(2);
    const auto optimizer = c.make(other);
    optimizer->load_lane_state_dict(0, run.optimizer->lane_state_dict(1));
    torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < other.parameters().size(); ++p) other.lane_parameters(0)[p].copy_(run.array.lane_parameters(1)[p]);
    for (const auto& gradients : run.further) {
      run.optimizer->update(1, 1, lanes_of(gradients, 1, 1));
      optimizer->update(0, 1, lanes_of(gradients, 1, 1));
    }
    for (std::size_t p = 0; p < other.parameters().size(); ++p) EXPECT_TRUE(same_bits(other.lane_parameters(0)[p], run.array.lane_parameters(1)[p])) << c.name;
  }
}

TEST(StateDictTest, BetasMayBeAListAndAFreshStateLoads) {
  auto array = odd_array(2);
  optim::Adam adam(array, {.lr = {0.1, 0.2}, .beta1 = {0.8, 0.7}});
  torch::manual_seed(5);
  adam.update(0, 2, random_gradients(array));
  auto fresh_array = odd_array(2);
  optim::Adam fresh(fresh_array, {.lr = 0.5});
  const auto state = fresh.lane_state_dict(1);
  auto group = state.toGenericDict().at("param_groups").toList().get(0).toGenericDict();
  c10::impl::GenericList betas(c10::AnyType::get());
  betas.push_back(0.5);
  betas.push_back(0.25);
  group.insert_or_assign("betas", betas);
  adam.load_lane_state_dict(0, state);
  EXPECT_EQ(adam.get("beta2", 0), 0.25);
  EXPECT_EQ(adam.get("beta2", 1), 0.999);
  EXPECT_EQ(adam.steps(0), 0);
  EXPECT_EQ(adam.lane_state_dict(0).toGenericDict().at("state").toGenericDict().size(), 0u);
  EXPECT_EQ(adam.lane_state_dict(1).toGenericDict().at("state").toGenericDict().size(), 5u);
}

class BadStateTest : public ::testing::Test {
 protected:
  Array<OddNet> array = odd_array(2);
  optim::Adam adam{array, {.lr = {0.1, 0.2}}};
  c10::IValue state;

  void SetUp() override {
    torch::manual_seed(5);
    adam.update(0, 2, random_gradients(array));
    state = adam.lane_state_dict(1);
  }
  Dict entry(std::int64_t p) { return state.toGenericDict().at("state").toGenericDict().at(p).toGenericDict(); }
  Dict group() { return state.toGenericDict().at("param_groups").toList().get(0).toGenericDict(); }
  std::string error() {
    try {
      adam.load_lane_state_dict(0, state);
    } catch (const InvalidArgument& e) {
      EXPECT_EQ(adam.get("lr", 0), 0.1) << "written before the error";
      return e.what();
    }
    return "no error";
  }
  std::string name(std::size_t p) { return array.parameters()[p].name; }
};

TEST_F(BadStateTest, WrongShapeIsNamed) {
  entry(1).insert_or_assign("exp_avg_sq", torch::zeros({3, 4}));
  EXPECT_EQ(error(), base::message("optim::Adam: expected \"exp_avg_sq\" of \"", name(1), "\" of shape ", array.parameters()[1].tensor.sizes().slice(1), ", got [3, 4]"));
}

TEST_F(BadStateTest, WrongKeysAreNamed) {
  entry(1).insert("momentum_buffer", torch::zeros({3, 4}));
  EXPECT_EQ(error(), "optim::Adam: expected state of \"" + name(1) + "\" with step, exp_avg, exp_avg_sq, got step, exp_avg, exp_avg_sq, momentum_buffer");
}

TEST_F(BadStateTest, AMissingTensorIsNamed) {
  EXPECT_EQ(entry(1).erase("exp_avg"), 1u);
  EXPECT_EQ(error(), "optim::Adam: expected state of \"" + name(1) + "\" with step, exp_avg, exp_avg_sq, got step, exp_avg_sq");
}

TEST_F(BadStateTest, AnotherFlagIsNamed) {
  group().insert_or_assign("amsgrad", true);
  EXPECT_EQ(error(), "optim::Adam: expected \"amsgrad\" of parameter group 0 false as this optimizer's, got True");
}

TEST_F(BadStateTest, AMissingNumberIsNamed) {
  EXPECT_EQ(group().erase("lr"), 1u);
  EXPECT_EQ(error(), "optim::Adam: expected a number as \"lr\" of parameter group 0, got none");
}

TEST_F(BadStateTest, AnotherDictIsNamed) {
  state = Dict(c10::StringType::get(), c10::AnyType::get());
  EXPECT_EQ(error(), "optim::Adam: expected a state dict with \"state\" and \"param_groups\", got keys none");
}

}  // namespace state_dict_test
}  // namespace hfta::test
