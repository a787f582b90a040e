#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hfta::lanes {

/// A value in Python's pickle format, and the tensors whose data belongs into the archive's records `data/0`, `data/1`, ...
struct Pickled {
  std::string bytes;
  std::vector<at::Tensor> records;
};

/// @throws Unsupported for values that plain Python data cannot hold.
Pickled pickle(const c10::IValue& value);

/// The bytes of a record as a storage. @throws InvalidArgument where there is no such record.
using ReadRecord = std::function<at::Storage(const std::string& key)>;

/// The way back, also of what Python's `torch.save` wrote. Makes plain data only, as `weights_only=True` does.
/// @throws InvalidArgument for damaged bytes and for anything that is not plain data, naming it.
c10::IValue unpickle(std::string_view bytes, const ReadRecord& read_record);

/// The type of a storage class: "FloatStorage" is float; nothing for others.
std::optional<at::ScalarType> type_of_storage(std::string_view name);
/// The storage class of a type, empty where Python has none (then the untyped one serves).
std::string_view storage_of_type(at::ScalarType type);

}  // namespace hfta::lanes
