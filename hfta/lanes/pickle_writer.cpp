#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/lanes/pickle.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

constexpr std::array<std::pair<at::ScalarType, std::string_view>, 12> kStorages{{{at::kFloat, "FloatStorage"},
                                                                                 {at::kDouble, "DoubleStorage"},
                                                                                 {at::kHalf, "HalfStorage"},
                                                                                 {at::kBFloat16, "BFloat16Storage"},
                                                                                 {at::kLong, "LongStorage"},
                                                                                 {at::kInt, "IntStorage"},
                                                                                 {at::kShort, "ShortStorage"},
                                                                                 {at::kChar, "CharStorage"},
                                                                                 {at::kByte, "ByteStorage"},
                                                                                 {at::kBool, "BoolStorage"},
                                                                                 {at::kComplexFloat, "ComplexFloatStorage"},
                                                                                 {at::kComplexDouble, "ComplexDoubleStorage"}}};

/// Python's name of a type that has no storage class of its own.
std::string_view python_type(at::ScalarType type) {
  switch (type) {
    case at::kUInt16: return "uint16";
    case at::kUInt32: return "uint32";
    case at::kUInt64: return "uint64";
    case at::kFloat8_e4m3fn: return "float8_e4m3fn";
    case at::kFloat8_e5m2: return "float8_e5m2";
    default: return {};
  }
}

/// Writes protocol 2 opcodes, those that a restricted reader takes; nothing is memoized but tensors' records.
class Writer {
 public:
  Pickled write(const c10::IValue& value) {
    raw("\x80\x02");
    push(value);
    raw(".");
    return std::move(result_);
  }

 private:
  void raw(std::string_view bytes) { result_.bytes += bytes; }

  template <typename Int>
  void little_endian(Int value) {
    static_assert(std::endian::native == std::endian::little);
    result_.bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void push(const c10::IValue& value) {
    if (value.isNone()) return raw("N");
    if (value.isBool()) return raw(value.toBool() ? "\x88" : "\x89");
    if (value.isInt()) return integer(value.toInt());
    if (value.isDouble()) return number(value.toDouble());
    if (value.isString()) return text(value.toStringRef());
    if (value.isTensor()) return tensor(value.toTensor());
    if (value.isGenericDict()) return dict(value.toGenericDict());
    if (value.isTuple()) return tuple(value.toTupleRef().elements());
    if (value.isList()) return list(value);
    throw Unsupported(base::message("lanes::save_archive: expected dicts, lists, tuples, strings, numbers and tensors, got ", value.tagKind()));
  }

  void integer(std::int64_t value) {
    if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
      raw("J");
      return little_endian(static_cast<std::int32_t>(value));
    }
    raw("\x8a\x08");
    little_endian(value);
  }

  void number(double value) {
    raw("G");  // big-endian, unlike all else
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int byte = 7; byte >= 0; --byte) result_.bytes += static_cast<char>(bits >> (8 * byte));
  }

  void text(std::string_view value) {
    raw("X");
    little_endian(static_cast<std::uint32_t>(value.size()));
    raw(value);
  }

  void global(std::string_view module, std::string_view name) {
    raw("c");
    raw(module);
    raw("\n");
    raw(name);
    raw("\n");
  }

  void dict(const c10::Dict<c10::IValue, c10::IValue>& values) {
    raw("}(");
    for (const auto& entry : values) {
      const auto& key = entry.key();
      if (!key.isString() && !key.isInt() && !key.isDouble() && !key.isBool())
        throw Unsupported(base::message("lanes::save_archive: expected strings or numbers as keys, got ", key.tagKind()));
      push(key);
      push(entry.value());
    }
    raw("u");
  }

  void tuple(c10::ArrayRef<c10::IValue> values) {
    raw("(");
    for (const auto& value : values) push(value);
    raw("t");
  }

  void list(const c10::IValue& values) {
    raw("](");
    if (values.isTensorList()) {
      for (const at::Tensor& value : values.toTensorList()) tensor(value);
    } else if (values.isIntList()) {
      for (const std::int64_t value : values.toIntList()) integer(value);
    } else if (values.isDoubleList()) {
      for (const double value : values.toDoubleList()) number(value);
    } else if (values.isBoolList()) {
      for (const bool value : values.toBoolList()) raw(value ? "\x88" : "\x89");
    } else {
      for (const auto& value : values.toListRef()) push(value);
    }
    raw("e");
  }

  void integers(c10::ArrayRef<std::int64_t> values) {
    raw("(");
    for (const auto value : values) integer(value);
    raw("t");
  }

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return raw("N");
    const auto type = tensor.scalar_type();
    const bool typed = !storage_of_type(type).empty();
    if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta() || (!typed && python_type(type).empty()))
      throw Unsupported(base::message("lanes::save_archive: expected dense tensors of common types, got ", tensor.toString()));
    // What all lanes share is written once, as it is stored.
    const bool repeats = tensor.dim() > 0 && tensor.size(0) > 1 && tensor.stride(0) == 0;
    const auto stored = repeats ? tensor.select(0, 0) : tensor;
    auto strides = dense_strides(stored);
    if (repeats) strides.insert(strides.begin(), 0);
    global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    raw("((");
    text("storage");
    global(typed ? "torch" : "torch.storage", typed ? storage_of_type(type) : "UntypedStorage");
    text(std::to_string(record(stored)));
    text("cpu");
    integer(stored.numel() * (typed ? 1 : static_cast<std::int64_t>(tensor.element_size())));
    raw("tQ");
    integer(0);
    integers(tensor.sizes());
    integers(strides);
    raw("\x89");
    global("collections", "OrderedDict");
    raw(")R");
    if (!typed) global("torch", python_type(type));
    raw("tR");
  }

  /// The tensor's record; tied tensors share theirs.
  std::size_t record(const at::Tensor& tensor) {
    const auto same = [&](const at::Tensor& other) {
      return other.is_same(tensor) || (other.is_alias_of(tensor) && other.storage_offset() == tensor.storage_offset() && other.sizes() == tensor.sizes() &&
                                       other.strides() == tensor.strides() && other.scalar_type() == tensor.scalar_type() && other.is_conj() == tensor.is_conj() &&
                                       other.is_neg() == tensor.is_neg());
    };
    auto& records = result_.records;
    const auto known = std::find_if(records.begin(), records.end(), same);
    if (known != records.end()) return known - records.begin();
    records.push_back(tensor);
    return records.size() - 1;
  }

  Pickled result_;
};

}  // namespace

Pickled pickle(const c10::IValue& value) { return Writer().write(value); }

std::optional<at::ScalarType> type_of_storage(std::string_view name) {
  for (const auto& [type, storage] : kStorages)
    if (storage == name) return type;
  return std::nullopt;
}

std::string_view storage_of_type(at::ScalarType type) {
  for (const auto& [known, storage] : kStorages)
    if (known == type) return storage;
  return {};
}

}  // namespace hfta::lanes
