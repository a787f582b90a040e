#include "hfta/lanes/merge.h"

#include <ATen/core/Reduction.h>

#include "hfta/lanes/merging.h"
#include "hfta/ops/softmax.h"

namespace hfta::lanes {
namespace {

using program::Argument;
using program::Program;
using program::ValueId;

class Merger : private Merging {
 public:
  using Merging::Merging;

  Program run() {
    for (std::size_t i = 0; i < size(); ++i) merge_classifier(i) || merge_relu(i) || merge_gate(i) || merge_pool(*this, i);
    return std::move(*this).finish();
  }

 private:
  /// Rows of few classes on the CPU, whose loss is a mean or a sum that is differentiated as it is.
  bool merge_classifier(std::size_t i) {
    if (!is(i, "aten::_log_softmax")) return false;
    const auto logits = input(i, 0), logs = output(i, 0);
    if (!logits || !logs || !takes_classes(*logits, node(i).inputs[1], *logs)) return false;
    const auto users = readers<3>(*logs, i, {"aten::nll_loss_forward", "aten::nll_loss_backward", "aten::_log_softmax_backward_data"});
    if (!users) return false;
    const auto [forward, backward, last] = *users;
    const auto &loss = node(forward), &gradient = node(backward);
    const auto target = input(forward, 1), seed = input(backward, 0), of_logs = output(backward, 0), result = output(last, 0), total = output(forward, 1);
    if (!target || !seed || !of_logs || !result || !total || value(*target).dtype != at::kLong || value(*target).sizes.size() != 1) return false;
    if (std::get<c10::IValue>(loss.inputs[3]).toInt() == at::Reduction::None || !value(*result).is_contiguous()) return false;
    for (std::size_t k = 1; k < 5; ++k)
      if (!(loss.inputs[k] == gradient.inputs[k + 1])) return false;
    if (input(backward, 6) != total || input(last, 0) != of_logs || !is_between(*of_logs, backward, {last}) || !is_between(*total, forward, {backward})) return false;
    const auto& makers = writers(*seed);
    if (makers.size() != 1 || !is(makers[0], "aten::ones_like") || !is_between(*seed, makers[0], {backward})) return false;
    for (const auto& argument : {node(i).inputs[0], loss.inputs[1], loss.inputs[2]})
      if (!stays(argument, i, last)) return false;
    replace(i, "hfta::cross_entropy", {*logits, loss.inputs[1], loss.inputs[2], loss.inputs[3], loss.inputs[4]}, {loss.outputs[0], *total, *result}, {forward, makers[0], backward, last});
    return true;
  }

  bool takes_classes(ValueId logits, const Argument& dim, ValueId logs) const {
    const auto& of = value(logits);
    const auto* along = std::get_if<c10::IValue>(&dim);
    return is_on_cpu(logits) && (of.dtype == at::kFloat || of.dtype == at::kDouble) && value(logs).dtype == of.dtype &&
           of.sizes.size() == 2 && of.sizes[1] > 0 && of.sizes[1] <= ops::kMostClasses && along && (along->toInt() == 1 || along->toInt() == -1);
  }

  bool merge_relu(std::size_t i) {
    if (!is(i, "aten::addmm")) return false;
    const auto relu = rectifier(i);
    if (!relu) return false;
    replace(i, "hfta::addmm_relu", node(i).inputs, node(*relu).outputs, {*relu});
    return true;
  }

  bool merge_gate(std::size_t i) {
    if (!is(i, "aten::mm")) return false;
    const auto gated = taker(i, "aten::threshold_backward");
    if (!gated || !is_relu_gradient(*gated)) return false;
    const auto sums = output(i, 0), gate = input(*gated, 1);
    if (!gate || value(*gate).sizes != value(*sums).sizes || value(*gate).dtype != value(*sums).dtype) return false;
    for (const auto& argument : node(i).inputs)
      if (!stays(argument, i, *gated)) return false;
    replace(*gated, "hfta::mm_gated", {node(i).inputs[0], node(i).inputs[1], *gate}, node(*gated).outputs, {i});
    return true;
  }
};

}  // namespace

program::Program merged(program::Program program) { return Merger(std::move(program)).run(); }

}  // namespace hfta::lanes
