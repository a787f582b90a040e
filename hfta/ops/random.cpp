#include "hfta/ops/random.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <string>

#include "hfta/ops/arguments.h"
#include "hfta/ops/looped.h"
#include "hfta/ops/mersenne.h"
#include "hfta/ops/register.h"

namespace hfta::ops {
namespace {

using Generators = c10::List<at::Generator>;

template <typename T>
void fill_slice(const at::Tensor& slice, double p, const at::Generator& generator) {
  fill_bernoulli(std::span(slice.mutable_data_ptr<T>(), static_cast<std::size_t>(slice.numel())), p, generator);
}

void bernoulli_slice(at::Tensor slice, double p, const at::Generator& generator) {
  if (!slice.is_non_overlapping_and_dense()) {
    const auto drawn = at::empty(slice.sizes(), slice.options());
    bernoulli_slice(drawn, p, generator);
    slice.copy_(drawn);
    return;
  }
  // LibTorch draws in the order of memory, so a dense slice of any layout is one run.
  const bool ours = slice.device().is_cpu() && p >= 0 && p <= 1 && fill_bernoulli_is_native();
  if (ours && slice.scalar_type() == at::kFloat) return fill_slice<float>(slice, p, generator);
  if (ours && slice.scalar_type() == at::kDouble) return fill_slice<double>(slice, p, generator);
  if (ours && slice.scalar_type() == at::kBool) return fill_slice<bool>(slice, p, generator);
  slice.bernoulli_(p, generator);
}

at::Tensor& bernoulli_lanes_(at::Tensor& self, std::int64_t axis, at::ArrayRef<double> p, Generators generators) {
  for (std::int64_t lane = 0; lane < self.size(axis); ++lane) bernoulli_slice(self.select(axis, lane), p[lane], generators.get(lane));
  return self;
}

}  // namespace

void bernoulli_(const LaneTensor& destination, const std::vector<double>& probability, const std::vector<at::Generator>& generators,
                BernoulliLowering lowering) {
  TORCH_INTERNAL_ASSERT(destination.axis, "ops::bernoulli_: a shared destination cannot hold per-lane numbers");
  switch (lowering) {
    case BernoulliLowering::Together: {
      static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("hfta::bernoulli_lanes_", "").typed<decltype(bernoulli_lanes_)>();
      Generators list;
      for (const auto& generator : generators) list.push_back(generator);
      auto tensor = destination.tensor;
      op.call(tensor, *destination.axis, probability, list);
      return;
    }
    case BernoulliLowering::Looped:
      for (std::size_t lane = 0; lane < generators.size(); ++lane) {
        auto slice = lane_of(destination, static_cast<std::int64_t>(lane));
        if (slice.is_non_overlapping_and_dense()) {
          slice.bernoulli_(probability[lane], generators[lane]);
        } else {
          slice.copy_(at::empty(slice.sizes(), slice.options()).bernoulli_(probability[lane], generators[lane]));
        }
      }
      return;
  }
}

// ---- rules

namespace {

std::string_view name_of(BernoulliLowering lowering) { return lowering == BernoulliLowering::Together ? "together" : "looped"; }

/// `bernoulli_.float(Tensor(a!) self, float p, Generator? generator)`
void add_bernoulli() {
  OperatorRules rules{"aten::bernoulli_.float", {}};
  for (const auto lowering : kBernoulliLowerings)
    rules.lowerings.push_back({name_of(lowering), [lowering](const RuleContext& context, std::span<const LaneValue> values) -> std::optional<std::vector<LaneValue>> {
      const Arguments arguments(context, values);
      bernoulli_(arguments.required(0), arguments.numbers(1), context.generators, lowering);
      return std::vector<LaneValue>{values[0]};
    }, lowering == BernoulliLowering::Together});
  add_rules(std::move(rules));
}

/// `native_dropout(Tensor input, float p, bool? train) -> (output, mask)`, as LibTorch's CPU kernel computes it.
std::optional<std::vector<LaneValue>> native_dropout(const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  const auto input = arguments.lanes_first(0);
  const auto& train = arguments.plain(2);
  if (!train.isNone() && !train.toBool()) return std::vector<LaneValue>{values[0], LaneTensor{at::ones_like(input, at::kBool), 0}};
  std::vector<double> keep, scale;
  for (const double p : arguments.numbers(1)) {
    keep.push_back(1 - p);
    scale.push_back(p == 1 ? 0 : 1 / (1 - p));
  }
  const LaneTensor mask{at::empty(input.sizes(), input.options().dtype(at::kBool).memory_format(std::nullopt)), 0};
  bernoulli_(mask, keep, context.generators, BernoulliLowering::Together);
  const auto output = at::mul(input, mask.tensor).mul_(number_tensor(scale, input.dim(), input.scalar_type(), input.device()));
  return std::vector<LaneValue>{LaneTensor{output, 0}, mask};
}

/// What the factories of random tensors are made of: an empty tensor and an in-place draw.
struct Factory {
  std::vector<std::int64_t> sizes, strides;  ///< Of one lane; no strides: row-major.
  at::TensorOptions options;
  c10::Scalar low = 0, high = 0;
};

Factory read_factory(const c10::FunctionSchema& schema, const Arguments& arguments) {
  Factory factory;
  factory.options = at::TensorOptions().dtype(c10::typeMetaToScalarType(at::get_default_dtype()));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& name = schema.arguments()[i].name();
    if (name == "self") {
      const auto self = arguments.required(i);
      const auto slice = lane_of(self, 0);
      factory.sizes = slice.sizes().vec();
      if (slice.is_non_overlapping_and_dense()) factory.strides = slice.strides().vec();
      factory.options = self.tensor.options();
      continue;
    }
    const auto& value = arguments.plain(i);
    if (value.isNone()) continue;
    if (name == "size") factory.sizes = value.toIntVector();
    if (name == "low") factory.low = value.toScalar();
    if (name == "high") factory.high = value.toScalar();
    if (name == "dtype") factory.options = factory.options.dtype(value.toScalarType());
    if (name == "memory_format" && value.toMemoryFormat() != at::MemoryFormat::Preserve) factory.strides.clear();
    if (name == "device") factory.options = factory.options.device(value.toDevice());
  }
  return factory;
}

at::Tensor empty_lanes(Factory factory, std::int64_t lanes) {
  const auto numel = c10::multiply_integers(factory.sizes);
  factory.sizes.insert(factory.sizes.begin(), lanes);
  if (factory.strides.empty()) return at::empty(factory.sizes, factory.options);
  factory.strides.insert(factory.strides.begin(), numel);
  return at::empty_strided(factory.sizes, factory.strides, factory.options);
}

std::optional<std::vector<LaneValue>> draw_new(const c10::OperatorHandle& op, const RuleContext& context, std::span<const LaneValue> values) {
  const Arguments arguments(context, values);
  if (arguments.any_differs()) return draw_lanes(op, context, values);
  auto factory = read_factory(op.schema(), arguments);
  const auto drawn = empty_lanes(factory, context.lanes);
  const std::string& name = op.schema().name();
  for (std::int64_t lane = 0; lane < context.lanes; ++lane) {
    const auto slice = drawn.select(0, lane);
    const auto& generator = context.generators[lane];
    if (name.starts_with("aten::randint")) slice.random_(factory.low.toLong(), factory.high.toLong(), generator);
    else if (name.starts_with("aten::randn")) slice.normal_(0, 1, generator);
    else slice.uniform_(0, 1, generator);
  }
  return std::vector<LaneValue>{LaneTensor{drawn, 0}};
}

/// Registers `run(op, context, values)` for an operator that this LibTorch has.
template <typename Run>
void add_for(std::string_view name, std::string_view overload, std::string_view lowering, Run run) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string(name), std::string(overload)});
  if (!op) return;
  add_rules({toString(op->operator_name()), {{lowering, [op = *op, run](const RuleContext& context, std::span<const LaneValue> values) -> std::optional<std::vector<LaneValue>> {
    return run(op, context, values);
  }}}});
}

}  // namespace

void register_random_rules() {
  add_bernoulli();
  add_rules({"aten::native_dropout", {{"together", native_dropout}}});
  for (const char* name : {"aten::rand", "aten::randn", "aten::rand_like", "aten::randn_like", "aten::randint_like"})
    for (const char* overload : {"", "generator"}) add_for(name, overload, "in_place", draw_new);
  for (const char* overload : {"", "generator", "low", "low_generator"}) add_for("aten::randint", overload, "in_place", draw_new);
  for (const char* overload : {"low_dtype", "low_generator_dtype"}) add_for("aten::randint_like", overload, "in_place", draw_new);

  const std::pair<const char*, std::vector<const char*>> looped[] = {
      {"aten::bernoulli", {"", "p", "Tensor"}}, {"aten::bernoulli_", {"Tensor"}}, {"aten::uniform_", {""}}, {"aten::uniform", {""}},
      {"aten::normal_", {""}}, {"aten::normal", {"Tensor_float", "float_Tensor", "Tensor_Tensor", "float_float"}}, {"aten::normal_functional", {""}},
      {"aten::random_", {"", "from", "to"}}, {"aten::random", {"", "from", "to"}}, {"aten::exponential_", {""}}, {"aten::exponential", {""}},
      {"aten::geometric_", {""}}, {"aten::geometric", {""}}, {"aten::cauchy_", {""}}, {"aten::cauchy", {""}}, {"aten::log_normal_", {""}},
      {"aten::log_normal", {""}}, {"aten::multinomial", {""}}, {"aten::poisson", {""}}, {"aten::binomial", {""}}, {"aten::_standard_gamma", {""}},
      {"aten::_sample_dirichlet", {""}}, {"aten::randperm", {"", "generator"}}, {"aten::rrelu_with_noise", {""}}, {"aten::rrelu_with_noise_", {""}},
      {"aten::rrelu_with_noise_functional", {""}}, {"aten::randint_like", {"Tensor", "Tensor_generator"}}};
  for (const auto& [name, overloads] : looped)
    for (const char* overload : overloads) add_for(name, overload, "looped", draw_lanes);
}

}  // namespace hfta::ops

TORCH_LIBRARY_FRAGMENT(hfta, library) {
  library.def("bernoulli_lanes_(Tensor(a!) self, int axis, float[] p, Generator?[] generators) -> Tensor(a!)", {at::Tag::nondeterministic_seeded});
  library.impl("bernoulli_lanes_", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(hfta::ops::bernoulli_lanes_));
}
