#include "hfta/zoo/registry.h"

#include "hfta/zoo/builtin.h"
#include "hfta/zoo/plugin.h"

namespace hfta::zoo {

std::int64_t DataShape::features() const {
  std::int64_t count = 1;
  for (const auto size : input) count *= size;
  return count;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const auto size : shape) sizes.push_back(std::to_string(size));
  return '[' + (sizes.empty() ? "" : base::list(sizes)) + ']';
}

std::vector<std::string> models() { return Registry().names(); }

Registry::Registry() : factories_{{"cnn", cnn}, {"gru", gru}, {"mlp", mlp}} {}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

void Registry::add(const std::string& name, Factory factory) {
  HFTA_CHECK(!name.empty() && factory, "zoo::Registry: expected a name and a factory, got ",
             name.empty() ? "no name" : "no factory for \"" + name + '"');
  HFTA_CHECK(factories_.try_emplace(name, std::move(factory)).second, "zoo::Registry: expected a new name, got \"", name,
             "\", which is taken");
}

std::vector<std::string> Registry::load_plugin(const std::string& path) {
  const auto models = zoo::load_plugin(path);
  for (const auto& [name, factory] : models)
    HFTA_CHECK(!factories_.contains(name), "zoo::Registry: expected new names in the plug-in \"", path, "\", got \"", name,
               "\", which is taken");
  std::vector<std::string> names;
  for (const auto& [name, factory] : models) {
    add(name, factory);
    names.push_back(name);
  }
  return names;
}

Model Registry::make(const std::string& name, const Options& options, const DataShape& data) const {
  const auto found = factories_.find(name);
  HFTA_CHECK(found != factories_.end(), "zoo::Registry: expected a model out of ", base::list(names()), ", got \"", name, '"');
  HFTA_CHECK(!data.input.empty(), "zoo::", name, ": expected items with a shape, got single numbers");
  for (const auto size : data.input)
    HFTA_CHECK(size >= 1, "zoo::", name, ": expected items with sizes of at least 1, got ", text_of(data.input));
  HFTA_CHECK(data.outputs >= 1, "zoo::", name, ": expected at least 1 output, got ", data.outputs);
  base::OptionReader reader("zoo::" + name, options);
  auto model = found->second(reader, data);
  reader.done();
  HFTA_CHECK(model.build && model.forward, "zoo::", name, ": expected a factory that gives a model, got one without build or forward");
  return model;
}

}  // namespace hfta::zoo
