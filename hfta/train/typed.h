#pragma once

#include <array>
#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hfta/base/error.h"
#include "hfta/lanes/typed_array.h"
#include "hfta/train/step.h"

/// From a user's function of models and tensors, `fn(Net&, const Tensor&...)`, to functions of a lane, and back from stacked results.
namespace hfta::train::typed {

template <typename T>
concept IsArray = std::derived_from<std::remove_cvref_t<T>, lanes::ArrayBase>;

/// One array, or several as `std::tie(generator, discriminator)`, by reference.
template <IsArray A>
std::tuple<A&> tied(A& array) { return {array}; }
template <IsArray... A>
std::tuple<A&...> tied(std::tuple<A&...> arrays) { return arrays; }

template <typename T>
concept Arrays = requires(T& arrays) { tied(arrays); };

template <typename... A>
std::vector<lanes::ArrayBase*> pointers(const std::tuple<A&...>& arrays) {
  return std::apply([](auto&... array) { return std::vector<lanes::ArrayBase*>{&array...}; }, arrays);
}

inline Input input(const at::Tensor& tensor) { return {tensor, false}; }
inline Input input(const Input& marked) { return marked; }

template <typename T>
concept IsInput = requires(const T& value) { input(value); };

inline StepResult step_result(at::Tensor loss) { return {std::move(loss), {}}; }
inline StepResult step_result(StepResult result) { return result; }
inline StepResult step_result(std::pair<at::Tensor, std::vector<at::Tensor>> result) { return {std::move(result.first), std::move(result.second)}; }
inline StepResult step_result(std::pair<at::Tensor, at::Tensor> result) { return {std::move(result.first), {std::move(result.second)}}; }
template <typename... Extras>
StepResult step_result(std::tuple<at::Tensor, Extras...> result) {
  return std::apply([](at::Tensor loss, auto... extras) { return StepResult{std::move(loss), {std::move(extras)...}}; }, std::move(result));
}

/// The models of one lane: what `fn` gets before the inputs.
template <typename... A>
auto models(const std::tuple<A&...>& arrays, std::int64_t lane) {
  return std::apply([&](auto&... array) { return std::tuple(array.lane(lane).net()...); }, arrays);
}

template <typename Fn, typename Models, std::size_t... I>
decltype(auto) call_on(Fn& fn, Models& models, std::span<const at::Tensor> inputs, std::index_sequence<I...>) {
  return std::apply([&](auto&... model) -> decltype(auto) { return fn(model..., inputs[I]...); }, models);
}

template <typename Fn, typename Models, typename Indices>
inline constexpr bool takes = false;
template <typename Fn, typename... Nets, std::size_t... I>
inline constexpr bool takes<Fn, std::tuple<Nets...>, std::index_sequence<I...>> = std::is_invocable_v<Fn&, Nets&..., decltype((void(I), std::declval<const at::Tensor&>()))...>;

inline constexpr std::size_t kMostInputs = 8;

/// The least number of inputs, from `N` on, that `fn` takes after its models; `kMostInputs + 1` for none.
template <typename Fn, typename Models, std::size_t N = 0>
constexpr std::size_t inputs_of() {
  if constexpr (N > kMostInputs) return N;
  else if constexpr (takes<Fn, Models, std::make_index_sequence<N>>) return N;
  else return inputs_of<Fn, Models, N + 1>();
}

/// What `fn` returns for one lane of the arrays when called with `N` inputs.
template <typename Fn, typename ArrayTuple, std::size_t N>
using ResultWith = std::remove_cvref_t<decltype(call_on(std::declval<Fn&>(), std::declval<decltype(models(std::declval<ArrayTuple>(), 0))&>(),
                                                        std::span<const at::Tensor>(), std::make_index_sequence<N>()))>;

/// Calls `fn` for a lane with as many inputs as it is given. @throws InvalidArgument when it takes another number.
template <typename Fn, typename... A>
LaneStep lane_step(const std::tuple<A&...>& arrays, Fn fn) {
  using Models = decltype(models(arrays, 0));
  static constexpr auto kInputs = inputs_of<Fn, Models>();
  static_assert(kInputs <= kMostInputs, "the function takes the arrays' models by reference, then up to 8 tensors: fn(Net&, const Tensor&...)");
  return [arrays, fn = std::move(fn)](std::int64_t lane, std::span<const at::Tensor> inputs) mutable -> StepResult {
    HFTA_CHECK(inputs.size() == kInputs, "train::train_step: expected ", kInputs, " inputs as the function takes, got ", inputs.size());
    auto nets = models(arrays, lane);
    return step_result(call_on(fn, nets, inputs, std::make_index_sequence<kInputs>()));
  };
}

/// The same for a number of inputs that the call states.
template <std::size_t N, typename Fn, typename... A>
LaneStep step_with(const std::tuple<A&...>& arrays, Fn& fn) {
  return [arrays, &fn](std::int64_t lane, std::span<const at::Tensor> inputs) -> StepResult {
    auto nets = models(arrays, lane);
    return step_result(call_on(fn, nets, inputs, std::make_index_sequence<N>()));
  };
}

template <typename T>
inline constexpr bool is_list = false;
template <typename T>
inline constexpr bool is_list<std::vector<T>> = true;

/// Nested tuples, pairs and vectors of tensors as a flat list, and the same nest filled from one.
template <typename T>
void flatten(const T& value, std::vector<at::Tensor>& out) {
  if constexpr (std::is_convertible_v<const T&, at::Tensor>) out.push_back(value);
  else if constexpr (is_list<T>) for (const auto& entry : value) flatten(entry, out);
  else std::apply([&](const auto&... entries) { (flatten(entries, out), ...); }, value);
}
template <typename T>
T refill(const T& shape, std::span<const at::Tensor>& values) {
  T filled = shape;
  if constexpr (std::is_convertible_v<const T&, at::Tensor>) filled = values.front(), values = values.subspan(1);
  else if constexpr (is_list<T>) for (auto& entry : filled) entry = refill(entry, values);
  else std::apply([&](auto&... entries) { ((entries = refill(entries, values)), ...); }, filled);
  return filled;
}

/// `fn` for one lane, its result as a flat list.
template <typename Fn, typename... A>
LaneFunction lane_function(const std::tuple<A&...>& arrays, Fn fn) {
  using Models = decltype(models(arrays, 0));
  static constexpr auto kInputs = inputs_of<Fn, Models>();
  static_assert(kInputs <= kMostInputs, "the function takes the arrays' models by reference, then up to 8 tensors: fn(Net&, const Tensor&...)");
  return [arrays, fn = std::move(fn)](std::int64_t lane, std::span<const at::Tensor> inputs) mutable {
    HFTA_CHECK(inputs.size() == kInputs, "train::evaluate: expected ", kInputs, " inputs as the function takes, got ", inputs.size());
    auto nets = models(arrays, lane);
    std::vector<at::Tensor> flat;
    const auto result = call_on(fn, nets, inputs, std::make_index_sequence<kInputs>());
    flatten(result, flat);
    return flat;
  };
}

/// What a step gives back: the losses alone where `fn` returns a loss alone.
template <typename Result>
auto step_output(StepOutput output) {
  if constexpr (std::is_same_v<Result, at::Tensor>) return std::move(output.losses);
  else return output;
}

}  // namespace hfta::train::typed
