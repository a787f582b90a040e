// A project of its own that found hfta with find_package(hfta). `consumer [PLUGIN]` trains nothing long: it shows that all fits together.

#include <hfta/hfta.h>
#include <torch/torch.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  NetImpl() : hidden(register_module("hidden", torch::nn::Linear(8, 16))), out(register_module("out", torch::nn::Linear(16, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out->forward(torch::relu(hidden->forward(x))); }
  torch::nn::Linear hidden, out;
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  hfta::Array<Net> array(4, [](std::int64_t) { return Net(); });
  const auto data = hfta::data::blobs({.items = 90, .shape = {8}, .classes = 3});
  hfta::data::Loader loader(data, {.batch_size = 30});
  for (auto& batch : loader)
    for (std::int64_t lane = 0; lane < array.lanes(); ++lane) {
      const auto loss = torch::nn::functional::cross_entropy(array.lane(lane)->forward(batch.data), batch.target);
      if (!std::isfinite(loss.item<float>())) return 1;
    }
  std::cout << "hfta " HFTA_VERSION ": " << array.lanes() << " lanes on " << data.size() << " items\n";

  hfta::zoo::Registry registry;
  if (argc > 1) std::cout << "plug-in with " << registry.load_plugin(argv[1]).at(0) << "\n";
}
