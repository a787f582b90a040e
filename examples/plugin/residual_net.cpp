// A model of one's own for the command line: `[model] plugin = "libresidual_net.so"` in a study file.

#include <hfta/zoo/plugin.h>
#include <torch/torch.h>

namespace {

// An ordinary LibTorch module; nothing in it knows of lanes.
struct ResidualNetImpl : torch::nn::Module {
  ResidualNetImpl(std::int64_t features, std::int64_t width, std::int64_t blocks, std::int64_t outputs)
      : first(register_module("first", torch::nn::Linear(features, width))),
        last(register_module("last", torch::nn::Linear(width, outputs))) {
    for (std::int64_t i = 0; i < blocks; ++i) layers->push_back(torch::nn::Linear(width, width));
    register_module("layers", layers);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    auto x = torch::relu(first->forward(input.flatten(1)));
    for (const auto& layer : *layers) x = x + torch::relu(layer->as<torch::nn::Linear>()->forward(x));
    return last->forward(x);
  }

  torch::nn::Linear first, last;
  torch::nn::ModuleList layers;
};
TORCH_MODULE(ResidualNet);

hfta::zoo::Model make_residual_net(hfta::base::OptionReader& options, const hfta::zoo::DataShape& data) {
  const auto width = options.integer("width", 64), blocks = options.integer("blocks", 2);
  return hfta::zoo::model([=] { return ResidualNet(data.features(), width, blocks, data.outputs); });
}

}  // namespace

HFTA_MODEL("residual_net", make_residual_net);
