#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>
#include <variant>

#include "hfta/base/error.h"
#include "hfta/lanes/pickle.h"

namespace hfta::lanes {
namespace {

struct Item;
struct Global {
  std::string name;
};
using Tuple = std::shared_ptr<std::vector<Item>>;
struct TypedStorage {
  at::Storage storage;
  std::optional<at::ScalarType> type;  ///< None: bytes.
};

/// What is on the stack of the reader: plain data, or what a tensor is made of.
struct Item {
  std::variant<c10::IValue, Global, Tuple, TypedStorage> is;
};

[[noreturn]] void refuse(const std::string& what) { throw InvalidArgument(base::message("lanes::load_archive: expected plain data, got ", what)); }
[[noreturn]] void damaged() { refuse("a damaged file"); }

template <typename Kind>
Kind& as(Item& item) {
  if (auto* kind = std::get_if<Kind>(&item.is)) return *kind;
  if (const auto* global = std::get_if<Global>(&item.is)) refuse(global->name);
  damaged();
}

c10::IValue plain(Item& item) {
  auto* tuple = std::get_if<Tuple>(&item.is);
  if (tuple == nullptr) return as<c10::IValue>(item);
  std::vector<c10::IValue> values;
  for (auto& part : **tuple) values.push_back(plain(part));
  return c10::ivalue::Tuple::create(std::move(values));
}

std::int64_t whole(Item& item) {
  const auto& value = as<c10::IValue>(item);
  if (!value.isInt()) damaged();
  return value.toInt();
}

std::string string(Item& item) {
  const auto& value = as<c10::IValue>(item);
  if (!value.isString()) damaged();
  return value.toStringRef();
}

std::vector<std::int64_t> wholes(Item& item) {
  std::vector<std::int64_t> values;
  for (auto& part : *as<Tuple>(item)) values.push_back(whole(part));
  return values;
}

std::optional<at::ScalarType> type_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types{{"torch.uint16", at::kUInt16},           {"torch.uint32", at::kUInt32},
                                                           {"torch.uint64", at::kUInt64},           {"torch.float8_e4m3fn", at::kFloat8_e4m3fn},
                                                           {"torch.float8_e5m2", at::kFloat8_e5m2}, {"torch.float32", at::kFloat},
                                                           {"torch.float64", at::kDouble},          {"torch.float16", at::kHalf},
                                                           {"torch.bfloat16", at::kBFloat16},       {"torch.int64", at::kLong},
                                                           {"torch.int32", at::kInt},               {"torch.int16", at::kShort},
                                                           {"torch.int8", at::kChar},               {"torch.uint8", at::kByte},
                                                           {"torch.bool", at::kBool},               {"torch.complex64", at::kComplexFloat},
                                                           {"torch.complex128", at::kComplexDouble}};
  const auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

/// The view of a storage that a tensor is. Sizes come from the file, so that they fit is not taken for granted.
at::Tensor view_of(const TypedStorage& memory, at::ScalarType type, std::int64_t offset, const std::vector<std::int64_t>& sizes,
                   const std::vector<std::int64_t>& strides) {
  if (sizes.size() != strides.size() || offset < 0) damaged();
  const auto capacity = static_cast<std::int64_t>(memory.storage.nbytes() / c10::elementSize(type));
  std::int64_t last = offset;
  bool empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0) damaged();
    empty |= sizes[d] == 0;
    std::int64_t reach = 0;
    if (sizes[d] > 0 && (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) || __builtin_add_overflow(last, reach, &last))) damaged();
  }
  if (!empty && last >= capacity) damaged();
  auto tensor = at::empty({0}, at::TensorOptions(type));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(memory.storage);
  impl->set_storage_offset(empty ? 0 : offset);
  impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

/// Calls what a pickle may call.
class Calls {
 public:
  explicit Calls(const ReadRecord& read_record) : read_record_(read_record) {}

  Item call(const Global& function, std::vector<Item>& arguments) const {
    const auto& name = function.name;
    const auto at_least = [&](std::size_t count) {
      if (arguments.size() < count) damaged();
    };
    if (name == "collections.OrderedDict" && arguments.empty()) return {new_dict()};
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor_v3" || name == "torch._utils._rebuild_tensor") {
      at_least(4);
      return {c10::IValue(tensor(name.ends_with("v3"), arguments))};
    }
    if (name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state") {
      at_least(1);
      return arguments[0];
    }
    if (name == "torch.Size") {
      at_least(1);
      return arguments[0];
    }
    if (name == "torch._tensor._rebuild_from_type_v2") {
      at_least(3);
      return call(as<Global>(arguments[0]), *as<Tuple>(arguments[2]));
    }
    refuse(name);
  }

  /// A persistent id: `("storage", class, key, device, elements)`.
  Item load(std::vector<Item>& id) const {
    if (id.size() < 5 || string(id[0]) != "storage") damaged();
    const auto& name = as<Global>(id[1]).name;
    TypedStorage memory{read_record_(string(id[2])), std::nullopt};
    if (name != "torch.storage.UntypedStorage") {
      memory.type = name.starts_with("torch.") ? type_of_storage(name.substr(6)) : std::nullopt;
      if (!memory.type) refuse(name);
    }
    return {memory};
  }

  static c10::IValue new_dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }
  static c10::IValue new_list() { return c10::impl::GenericList(c10::AnyType::get()); }

 private:
  static at::Tensor tensor(bool type_given, std::vector<Item>& arguments) {
    const auto& memory = as<TypedStorage>(arguments[0]);
    auto type = memory.type;
    if (type_given) {
      if (arguments.size() < 7) damaged();
      type = type_named(as<Global>(arguments[6]).name);
      if (!type) refuse(as<Global>(arguments[6]).name);
    }
    if (!type) damaged();
    return view_of(memory, *type, whole(arguments[1]), wholes(arguments[2]), wholes(arguments[3]));
  }

  const ReadRecord& read_record_;
};

/// Runs the opcodes.
class Reader {
 public:
  Reader(std::string_view bytes, const ReadRecord& read_record) : bytes_(bytes), calls_(read_record) {}

  c10::IValue read() {
    while (true) {
      const char opcode = take(1)[0];
      if (opcode == '.') return plain(top());
      if (!structure(opcode) && !literal(opcode)) refuse(base::message("pickle opcode ", static_cast<int>(static_cast<unsigned char>(opcode))));
    }
  }

 private:
  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - position_) damaged();
    const auto part = bytes_.substr(position_, count);
    position_ += count;
    return part;
  }

  template <typename Int>
  Int little_endian() {
    Int value;
    std::memcpy(&value, take(sizeof(Int)).data(), sizeof(Int));
    return value;
  }

  std::string line() {
    const auto end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) damaged();
    const std::string text(take(end - position_));
    position_ += 1;
    return text;
  }

  void push(Item item) { stack_.push_back(std::move(item)); }
  void push(c10::IValue value) { stack_.push_back({std::move(value)}); }
  Item& top() {
    if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) damaged();
    return stack_.back();
  }
  Item pop() {
    Item item = std::move(top());
    stack_.pop_back();
    return item;
  }
  std::vector<Item> pop_to_mark() {
    if (marks_.empty()) damaged();
    std::vector<Item> items(std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back())), std::make_move_iterator(stack_.end()));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_tuple(std::size_t count) {
    std::vector<Item> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push(Item{std::make_shared<std::vector<Item>>(std::move(items))});
  }

  void set_items(std::vector<Item> items) {
    auto& target = as<c10::IValue>(top());
    if (!target.isGenericDict() || items.size() % 2 != 0) damaged();
    auto dict = target.toGenericDict();
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const auto key = plain(items[i]);
      if (!key.isString() && !key.isInt() && !key.isDouble() && !key.isBool()) refuse(base::message("a key of type ", key.tagKind()));
      dict.insert_or_assign(key, plain(items[i + 1]));
    }
  }

  void append(std::vector<Item> items) {
    auto& target = as<c10::IValue>(top());
    if (!target.isList()) damaged();
    auto list = target.toList();
    for (auto& item : items) list.push_back(plain(item));
  }

  std::vector<Item> pop_some(std::size_t count) {
    std::vector<Item> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  bool structure(char opcode) {
    switch (opcode) {
      case '(': marks_.push_back(stack_.size()); return true;
      case '}': push(Calls::new_dict()); return true;
      case ']': push(Calls::new_list()); return true;
      case ')': push_tuple(0); return true;
      case '\x85': push_tuple(1); return true;
      case '\x86': push_tuple(2); return true;
      case '\x87': push_tuple(3); return true;
      case 't': push(Item{std::make_shared<std::vector<Item>>(pop_to_mark())}); return true;
      case 's': set_items(pop_some(2)); return true;
      case 'u': set_items(pop_to_mark()); return true;
      case 'a': append(pop_some(1)); return true;
      case 'e': append(pop_to_mark()); return true;
      case 'q': memo_[static_cast<unsigned char>(take(1)[0])] = top(); return true;
      case 'r': memo_[little_endian<std::uint32_t>()] = top(); return true;
      case 'h': recall(static_cast<unsigned char>(take(1)[0])); return true;
      case 'j': recall(little_endian<std::uint32_t>()); return true;
      case 'R': reduce(); return true;
      case 'Q': persistent(); return true;
      case 'b': build(); return true;
      case '\x81': new_object();
      case 'c': global(); return true;
      case '\x80': take(1); return true;
      default: return false;
    }
  }

  bool literal(char opcode) {
    switch (opcode) {
      case 'N': push(c10::IValue()); return true;
      case '\x88': push(c10::IValue(true)); return true;
      case '\x89': push(c10::IValue(false)); return true;
      case 'J': push(c10::IValue(std::int64_t{little_endian<std::int32_t>()})); return true;
      case 'K': push(c10::IValue(std::int64_t{little_endian<std::uint8_t>()})); return true;
      case 'M': push(c10::IValue(std::int64_t{little_endian<std::uint16_t>()})); return true;
      case '\x8a': push(c10::IValue(long_integer())); return true;
      case 'G': push(c10::IValue(big_endian_double())); return true;
      case 'X': push(c10::IValue(std::string(take(little_endian<std::uint32_t>())))); return true;
      default: return false;
    }
  }

  std::int64_t long_integer() {
    const auto bytes = take(little_endian<std::uint8_t>());
    if (bytes.size() > 8) refuse("an integer of more than 64 bits");
    std::uint64_t bits = !bytes.empty() && (bytes.back() & '\x80') != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
    return static_cast<std::int64_t>(bits);
  }

  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) damaged();
    push(Item(found->second));
  }

  void reduce() {
    auto arguments = pop();
    auto function = pop();
    push(calls_.call(as<Global>(function), *as<Tuple>(arguments)));
  }

  void persistent() {
    auto id = pop();
    push(calls_.load(*as<Tuple>(id)));
  }

  /// Attributes of an `OrderedDict` (a state dict's `_metadata`) or of a tensor: nothing that is kept.
  void build() {
    pop();
    as<c10::IValue>(top());
  }

  [[noreturn]] void new_object() {
    pop();
    auto type = pop();
    refuse(as<Global>(type).name);
  }

  void global() {
    auto module = line();
    if (module == "__builtin__") module = "builtins";
    push(Item{Global{module + "." + line()}});
  }

  std::string_view bytes_;
  std::size_t position_ = 0;
  Calls calls_;
  std::vector<Item> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Item> memo_;
};

}  // namespace

c10::IValue unpickle(std::string_view bytes, const ReadRecord& read_record) { return Reader(bytes, read_record).read(); }

}  // namespace hfta::lanes
