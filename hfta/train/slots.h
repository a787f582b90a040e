#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hfta/lanes/array.h"
#include "hfta/train/step.h"

namespace hfta::train {

/// What programs of some arrays run on: state slots are each array's parameters, then its buffers; generators are the first array's.
class Slots {
 public:
  explicit Slots(std::vector<lanes::ArrayBase*> arrays) : arrays_(std::move(arrays)) {}

  const std::vector<lanes::ArrayBase*>& arrays() const { return arrays_; }
  std::int64_t lanes() const { return arrays_[0]->lanes(); }

  /// Rows of lanes `[first, first + width)`, `[width, ...]`; of a single lane, and what all lanes share, without the lane axis.
  std::vector<at::Tensor> state(std::int64_t first, std::int64_t width) const;
  /// Per state slot, whether all lanes share it.
  std::vector<bool> shared() const;
  /// Gives each lane its own of these slots. @returns whether one of them was shared.
  bool unshare(const std::vector<std::int64_t>& slots) const;
  std::vector<std::string> names() const;
  std::vector<at::Generator> generators(std::int64_t first, std::int64_t width) const;
  std::vector<at::Generator> generator_copies(std::int64_t first, std::int64_t width) const;

  /// Runs `body` on a lane's state rows and puts the lane back as it was.
  /// @throws Unsupported naming the buffers that it bound to other memory.
  void untouched(std::int64_t lane, const std::function<void(const std::vector<at::Tensor>& rows)>& body) const;

 private:
  std::vector<lanes::ArrayBase*> arrays_;
};

/// The inputs of lanes `[first, first + width)`; of a single lane without the lane axis.
std::vector<at::Tensor> inputs_of_group(std::span<const Input> inputs, std::int64_t first, std::int64_t width);

/// An input whose memory a program can be bound to: dense, and each lane's row dense.
Input bindable(const Input& input);
Batch bindable(std::span<const Input> inputs);

/// A copy with the same strides: what is bound to one may be bound to the other.
at::Tensor twin(const at::Tensor& tensor);
std::vector<at::Tensor> twins(std::vector<at::Tensor> tensors);

}  // namespace hfta::train
