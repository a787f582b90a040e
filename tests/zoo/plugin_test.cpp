#include "hfta/zoo/plugin.h"

#include <filesystem>
#include <fstream>

#include "hfta/zoo/registry.h"
#include "tests/support.h"

namespace plugin_test {

using hfta::zoo::load_plugin;
using hfta::zoo::Registry;

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const hfta::InvalidArgument& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(PluginTest, ModelIsFoundByItsName) {
  Registry registry;
  EXPECT_EQ(registry.load_plugin(HFTA_RESIDUAL_NET), std::vector<std::string>{"residual_net"});
  const auto model = registry.make("residual_net", {{"width", 8}, {"blocks", 3}}, {{1, 3, 2}, 5});
  torch::manual_seed(1);
  const auto module = model.build();
  EXPECT_EQ(module->named_parameters()["layers.2.weight"].sizes(), (torch::IntArrayRef{8, 8}));
  EXPECT_EQ(model.forward(*module, torch::rand({4, 1, 3, 2})).sizes(), (torch::IntArrayRef{4, 5}));
  EXPECT_EQ(refusal([&] {
              registry.make("residual_net", {{"depth", 3}}, {{6}, 2});
            }),
            "zoo::residual_net: expected an option out of width, blocks, got \"depth\"");
}

TEST(PluginTest, OneRegistryDoesNotChangeAnother) {
  Registry first;
  first.load_plugin(HFTA_RESIDUAL_NET);
  EXPECT_EQ(Registry().names(), (std::vector<std::string>{"cnn", "gru", "mlp"}));
}

TEST(PluginErrorTest, MissingFileIsTold) {
  EXPECT_EQ(refusal([] { load_plugin("libnone.so"); }),
            "zoo::load_plugin: expected a shared library, got \"libnone.so\", which is not there");
  EXPECT_EQ(refusal([] { load_plugin("/tmp"); }), "zoo::load_plugin: expected a shared library, got \"/tmp\", which is no file");
}

TEST(PluginErrorTest, FileThatIsNoLibraryIsTold) {
  const auto path = std::filesystem::temp_directory_path() / ("hfta_no_library_" + std::to_string(getpid()) + ".so");
  std::ofstream(path) << "not a library";
  const auto text = refusal([&] { load_plugin(path); });
  std::filesystem::remove(path);
  EXPECT_TRUE(text.starts_with("zoo::load_plugin: expected a shared library that can be loaded, got: " + path.string())) << text;
}

TEST(PluginErrorTest, LibraryWithoutModelsIsTold) {
  EXPECT_EQ(refusal([] { load_plugin(HFTA_NO_PLUGIN); }),
            "zoo::load_plugin: expected a plug-in (HFTA_MODEL in one of its sources), got \"" HFTA_NO_PLUGIN "\", a library without one");
}

TEST(PluginErrorTest, OtherVersionIsTold) {
  EXPECT_EQ(refusal([] { load_plugin(HFTA_OTHER_VERSION); }),
            "zoo::load_plugin: expected a plug-in built for hfta " HFTA_VERSION " and LibTorch " TORCH_VERSION
            " (format 1), got \"" HFTA_OTHER_VERSION "\", built for hfta 9.8.7 and LibTorch 1.2.3 (format 2)");
}

TEST(PluginErrorTest, TakenNameAddsNothing) {
  Registry registry;
  EXPECT_EQ(refusal([&] { registry.load_plugin(HFTA_SAME_NAME); }),
            "zoo::Registry: expected new names in the plug-in \"" HFTA_SAME_NAME "\", got \"mlp\", which is taken");
  EXPECT_EQ(registry.names(), hfta::zoo::models());
}

}  // namespace plugin_test
