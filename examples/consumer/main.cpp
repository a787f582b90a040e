// A project of its own that found hfta with find_package(hfta): trains a few lanes, exports the best one, loads a plug-in.
// consumer [PLUGIN]

#include <hfta/hfta.h>
#include <torch/torch.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  NetImpl() : hidden(register_module("hidden", torch::nn::Linear(8, 16))), out(register_module("out", torch::nn::Linear(16, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out->forward(torch::relu(hidden->forward(x))); }
  torch::nn::Linear hidden, out;
};
TORCH_MODULE(Net);

int main(int argc, char** argv) try {
  hfta::Array<Net> array(4, [](std::int64_t) { return Net(); });
  hfta::optim::Adam adam(array, {.lr = {1e-5, 1e-4, 1e-3, 1e-2}});
  const auto loss = [](Net& net, const torch::Tensor& x, const torch::Tensor& y) {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  };

  hfta::data::Loader loader(hfta::data::blobs({.items = 900, .shape = {8}, .classes = 3}), {.batch_size = 30});
  torch::Tensor losses;
  for (auto& batch : loader) losses = hfta::train_step(array, adam, loss, batch.data, batch.target);
  const auto best = losses.argmin().item<std::int64_t>();
  std::cout << "hfta " HFTA_VERSION ": losses " << losses << "\nbest: lane " << best << "\n";
  hfta::save_lane(array, best, "best.pt");

  hfta::zoo::Registry registry;
  if (argc > 1) std::cout << "models of the plug-in: " << hfta::base::list(registry.load_plugin(argv[1])) << "\n";
  return losses[best].item<float>() < 0.5f ? 0 : 1;
} catch (const hfta::Error& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
