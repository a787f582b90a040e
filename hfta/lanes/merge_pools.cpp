#include <algorithm>
#include <array>

#include "hfta/lanes/merging.h"

namespace hfta::lanes {
namespace {

using program::Argument;
using program::Node;
using program::ValueId;

bool all_are(const Argument& argument, std::int64_t number, bool or_none = false) {
  const auto* plain = std::get_if<c10::IValue>(&argument);
  if (!plain || !plain->isIntList()) return false;
  const auto numbers = plain->toIntVector();
  return (or_none || !numbers.empty()) && std::ranges::all_of(numbers, [=](auto n) { return n == number; });
}

/// What is merged: with gradients, or without.
struct Pooling {
  std::size_t pool;
  std::optional<std::array<std::size_t, 2>> gradients;  // of the pooling and of the ReLU
};

class PoolMerger {
 public:
  explicit PoolMerger(Merging& merging) : m_(merging) {}

  std::optional<Pooling> find(std::size_t relu) const {
    if (!m_.is(relu, "aten::relu") && !m_.is(relu, "aten::relu_")) return std::nullopt;
    const auto images = m_.input(relu, 0), rectified = m_.output(relu, 0);
    if (!images || !rectified || !are_images(*images) || !are_images(*rectified) || m_.value(*images).sizes != m_.value(*rectified).sizes) return std::nullopt;
    Pooling found{};
    if (const auto all = m_.readers<3>(*rectified, relu, {kPool, kPoolGradient, "aten::threshold_backward"})) found = {(*all)[0], std::array{(*all)[1], (*all)[2]}};
    else if (const auto one = m_.readers<1>(*rectified, relu, {kPool})) found = {(*one)[0], std::nullopt};
    else return std::nullopt;
    const auto pooled = m_.output(found.pool, 0), indices = m_.output(found.pool, 1);
    if (m_.input(found.pool, 0) != rectified || !tiles_in_pairs(found.pool, 1) || !pooled || !indices || !m_.value(*pooled).is_contiguous()) return std::nullopt;
    if (!found.gradients) return m_.is_between(*indices, found.pool, {}) ? std::optional(found) : std::nullopt;
    return m_.is_between(*indices, found.pool, {found.gradients->front()}) && gradients_fit(found, *rectified) ? std::optional(found) : std::nullopt;
  }

  void merge(std::size_t relu, const Pooling& found) {
    if (const auto convolution = convolution_before(relu, found)) return merge_convolution(relu, found, *convolution);
    const auto pooled = *m_.output(found.pool, 0), images = *m_.input(relu, 0);
    const auto which = m_.add(m_.value(pooled).sizes, at::kByte, pooled);
    m_.replace(relu, "hfta::rectified_max_pool2d", {images}, {pooled, which}, {found.pool});
    if (!found.gradients) return;
    const auto [of_pool, of_relu] = *found.gradients;
    m_.replace(of_relu, "hfta::rectified_max_pool2d_backward", {*m_.input(of_pool, 0), which, c10::IValue(plane_of(images))}, m_.node(of_relu).outputs, {of_pool});
  }

 private:
  /// A convolution, and its gradients where there are some.
  struct Convolution {
    std::size_t forward;
    std::optional<std::size_t> backward;
  };

  /// The one whose results nobody but the ReLU reads, and whose gradients come from nowhere else.
  std::optional<Convolution> convolution_before(std::size_t relu, const Pooling& found) const {
    const auto images = *m_.input(relu, 0);
    const auto forward = m_.writers(images).front();
    if (!m_.is(forward, "aten::convolution") || m_.output(forward, 0) != images || m_.value(images).sizes.size() != 4) return std::nullopt;
    if (m_.rectifier(forward) != relu || !same_types(forward)) return std::nullopt;
    if (!found.gradients) return Convolution{forward, std::nullopt};
    const auto [of_pool, of_relu] = *found.gradients;
    const auto backward = m_.taker(of_relu, "aten::convolution_backward");
    if (!backward || m_.input(*backward, 1) != m_.input(forward, 0) || m_.input(*backward, 2) != m_.input(forward, 1)) return std::nullopt;
    const auto& options = m_.node(forward).inputs;
    if (!std::equal(options.begin() + 3, options.begin() + 9, m_.node(*backward).inputs.begin() + 4) || !m_.stays(m_.node(of_pool).inputs[0], of_pool, *backward)) return std::nullopt;
    return Convolution{forward, backward};
  }

  bool same_types(std::size_t convolution) const {
    const auto type = m_.value(*m_.output(convolution, 0)).dtype;
    return std::ranges::all_of(std::array{0, 1}, [&](auto k) { return m_.input(convolution, k) && m_.value(*m_.input(convolution, k)).dtype == type; });
  }

  void merge_convolution(std::size_t relu, const Pooling& found, const Convolution& convolution) {
    const auto pooled = *m_.output(found.pool, 0);
    const auto size = plane_of(*m_.input(relu, 0));
    const auto which = m_.add(m_.value(pooled).sizes, at::kByte, pooled);
    m_.replace(convolution.forward, "hfta::convolution_rectified_max_pool2d", m_.node(convolution.forward).inputs, {pooled, which}, {relu, found.pool});
    if (!found.gradients) return;
    const auto [of_pool, of_relu] = *found.gradients;
    auto inputs = m_.node(*convolution.backward).inputs;
    inputs.front() = *m_.input(of_pool, 0);
    inputs.insert(inputs.begin() + 1, which);
    inputs.push_back(c10::IValue(size));
    m_.replace(*convolution.backward, "hfta::convolution_rectified_max_pool2d_backward", std::move(inputs), m_.node(*convolution.backward).outputs, {of_pool, of_relu});
  }

  std::vector<std::int64_t> plane_of(ValueId images) const {
    const auto& sizes = m_.value(images).sizes;
    return {sizes.end()[-2], sizes.end()[-1]};
  }

  static constexpr std::string_view kPool = "aten::max_pool2d_with_indices", kPoolGradient = "aten::max_pool2d_with_indices_backward";

  /// Contiguous floating images of the CPU.
  bool are_images(ValueId id) const {
    const auto& v = m_.value(id);
    return v.is_contiguous() && (v.dtype == at::kFloat || v.dtype == at::kDouble) && !v.neg && m_.is_on_cpu(id);
  }

  /// Windows of 2 x 2 side by side, none over an edge: kernel, stride, padding, dilation and ceil mode are arguments from `first` on.
  bool tiles_in_pairs(std::size_t node, std::size_t first) const {
    const auto& inputs = m_.node(node).inputs;
    const auto& sizes = m_.value(*m_.input(node, first - 1)).sizes;
    const bool even = sizes.end()[-1] % 2 == 0 && sizes.end()[-2] % 2 == 0;
    const auto* ceil = std::get_if<c10::IValue>(&inputs[first + 4]);
    return all_are(inputs[first], 2) && all_are(inputs[first + 1], 2, true) && all_are(inputs[first + 2], 0) && all_are(inputs[first + 3], 1) && ceil && ceil->isBool() &&
           (even || !ceil->toBool());
  }

  bool gradients_fit(const Pooling& found, ValueId rectified) const {
    const auto [of_pool, of_relu] = *found.gradients;
    const auto given = m_.input(of_pool, 0), between = m_.output(of_pool, 0), result = m_.output(of_relu, 0);
    if (!given || !between || !result || m_.input(of_pool, 1) != rectified || m_.input(of_pool, 7) != m_.output(found.pool, 1) || !tiles_in_pairs(of_pool, 2)) return false;
    if (m_.input(of_relu, 0) != between || m_.input(of_relu, 1) != rectified || !m_.is_between(*between, of_pool, {of_relu}) || !are_images(*result)) return false;
    return m_.is_relu_gradient(of_relu) && m_.value(*given).dtype == m_.value(rectified).dtype && m_.stays(m_.node(of_pool).inputs[0], of_pool, of_relu);
  }

  Merging& m_;
};

}  // namespace

bool merge_pool(Merging& merging, std::size_t i) {
  PoolMerger merger(merging);
  const auto found = merger.find(i);
  if (found) merger.merge(i, *found);
  return found.has_value();
}

}  // namespace hfta::lanes
