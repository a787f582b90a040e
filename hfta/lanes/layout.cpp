#include "hfta/lanes/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "hfta/base/error.h"

namespace hfta::lanes {
namespace {

struct Extent {
  const char* begin;
  const char* end;
};

Extent extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {nullptr, nullptr};
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

bool same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_alias_of(b)) return false;
  const auto x = extent(a), y = extent(b);
  return x.begin < y.end && y.begin < x.end;
}

/// Collects a module's tensors; how a new one relates to those before it decides where it goes.
class Collector {
 public:
  explicit Collector(std::int64_t lane) : lane_(lane) {}

  void add(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
    if (!tensor.defined()) return;
    result_.objects.push_back(tensor.unsafeGetTensorImpl());
    if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta())
      throw Unsupported(base::message("lanes::Array: expected dense tensors, got \"", name, "\" of lane ", lane_, ", which is ",
                                      tensor.is_meta() ? "on the meta device" : tensor.is_quantized() ? "quantized" : "sparse"));
    for (const auto& known : result_.registrations)
      if (const auto& other = tensor_of(known); related(known, other, name, tensor)) {
        result_.registrations.push_back({name, known.is_parameter, known.index});
        return;
      }
    auto& list = is_parameter ? result_.parameters : result_.buffers;
    result_.registrations.push_back({name, is_parameter, list.size()});
    list.push_back(tensor);
  }

  ModuleTensors take() { return std::move(result_); }

 private:
  const at::Tensor& tensor_of(const Registration& r) const { return result_.at(r.is_parameter, r.index); }

  bool related(const Registration& known, const at::Tensor& other, const std::string& name, const at::Tensor& tensor) {
    if (tensor.is_same(other)) return true;
    if (!overlap(tensor, other)) return false;
    if (!same_view(tensor, other) || tensor.requires_grad())
      throw Unsupported(base::message("lanes::Array: expected tensors of their own memory, got \"", name, "\" of lane ", lane_,
                                      ", which is a view of \"", known.name, "\": register the same tensor twice to tie them"));
    result_.aliases.push_back({known.is_parameter, known.index, tensor});
    return true;
  }

  std::int64_t lane_;
  ModuleTensors result_;
};

std::string kind(const Registration& r) { return base::message(r.is_parameter ? "parameter" : "buffer", " \"", r.name, "\""); }

const at::Tensor& tensor_of(const ModuleTensors& tensors, const Registration& r) {
  return tensors.at(r.is_parameter, r.index);
}

const Registration& first_of(const ModuleTensors& tensors, const Registration& r) {
  for (const auto& other : tensors.registrations)
    if (other.is_parameter == r.is_parameter && other.index == r.index) return other;
  return r;
}

std::string tie(const ModuleTensors& tensors, const Registration& r) {
  const auto& first = first_of(tensors, r);
  return first.name == r.name ? std::string("a tensor of its own") : base::message("tied to \"", first.name, "\"");
}

void check_same_tensor(const ModuleTensors& expected, const ModuleTensors& got, std::size_t i, const std::string& start) {
  const auto &want = expected.registrations[i], &have = got.registrations[i];
  const auto &a = tensor_of(expected, want), &b = tensor_of(got, have);
  const auto fail = [&](const auto& mine, const auto& theirs) { throw InvalidArgument(base::message(start, kind(have), " ", mine, " where lane 0 has ", theirs)); };
  if (first_of(expected, want).name != first_of(got, have).name) fail(tie(got, have), tie(expected, want));
  if (a.sizes() != b.sizes()) fail(b.sizes(), a.sizes());
  if (a.scalar_type() != b.scalar_type()) fail(b.scalar_type(), a.scalar_type());
  const bool dense = a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense();
  if (dense && a.strides() != b.strides()) fail(base::message("strides ", b.strides()), a.strides());
  if (a.requires_grad() != b.requires_grad()) fail(b.requires_grad() ? "trainable" : "frozen", a.requires_grad() ? "a trainable one" : "a frozen one");
}

/// A storage that Python has seen keeps an object that counts as one more.
std::size_t holders(const c10::Storage& storage) {
  return storage.use_count() - (storage.unsafeGetStorageImpl()->pyobj_slot()->load_pyobj() ? 1 : 0);
}

}  // namespace

ModuleTensors tensors_of(const torch::nn::Module& module, std::int64_t lane) {
  Collector collector(lane);
  for (const auto& part : module.named_modules()) {
    const auto full = [&](const std::string& name) { return part.key().empty() ? name : part.key() + "." + name; };
    for (const auto& p : part.value()->named_parameters(/*recurse=*/false)) collector.add(full(p.key()), p.value(), true);
    for (const auto& b : part.value()->named_buffers(/*recurse=*/false)) collector.add(full(b.key()), b.value(), false);
  }
  return collector.take();
}

bool is_registered_as(const torch::nn::Module& module, const ModuleTensors& tensors) {
  std::size_t at = 0;
  const auto matches = [&](const auto& registered) {
    for (const auto& entry : registered)
      if (entry.value().defined() && (at == tensors.objects.size() || tensors.objects[at++] != entry.value().unsafeGetTensorImpl())) return false;
    return true;
  };
  for (const auto& part : module.modules())
    if (!matches(part->named_parameters(/*recurse=*/false)) || !matches(part->named_buffers(/*recurse=*/false))) return false;
  return at == tensors.objects.size();
}

std::vector<std::string> held_elsewhere(const ModuleTensors& tensors) {
  std::map<const c10::StorageImpl*, std::size_t> known;
  std::set<const c10::TensorImpl*> objects(tensors.objects.begin(), tensors.objects.end());
  for (const auto* list : {&tensors.parameters, &tensors.buffers})
    for (const auto& tensor : *list)
      if (tensor.is_view()) objects.insert(tensor._base().unsafeGetTensorImpl());
  for (const auto* object : objects) ++known[object->unsafe_storage().unsafeGetStorageImpl()];
  std::vector<std::string> names;
  for (const auto& r : tensors.registrations)
    if (const auto& storage = tensor_of(tensors, r).storage(); holders(storage) > known[storage.unsafeGetStorageImpl()]) names.push_back(r.name);
  return names;
}

std::vector<bool> buffers_of_frozen_parts(const ModuleTensors& tensors) {
  const auto names = first_names(tensors, false);
  const auto is_frozen = [&](std::string part) {
    while (!part.empty()) {
      part.resize(part.find_last_of('.') == std::string::npos ? 0 : part.find_last_of('.'));
      const auto begin = part.empty() ? part : part + '.';
      bool any = false, trains = false;
      for (const auto& r : tensors.registrations)
        if (r.is_parameter && r.name.starts_with(begin)) any = true, trains |= tensors.parameters[r.index].requires_grad();
      if (any) return !trains;
    }
    return false;
  };
  std::vector<bool> frozen;
  for (const auto& name : names) frozen.push_back(is_frozen(name));
  return frozen;
}

std::vector<std::string> first_names(const ModuleTensors& tensors, bool parameters) {
  std::vector<std::string> names((parameters ? tensors.parameters : tensors.buffers).size());
  for (const auto& r : tensors.registrations)
    if (r.is_parameter == parameters && names[r.index].empty()) names[r.index] = r.name;
  return names;
}

void check_same_layout(const ModuleTensors& expected, const ModuleTensors& got, std::int64_t lane) {
  const auto start = base::message("lanes::Array: expected lane ", lane, " as lane 0, got ");
  const auto &want = expected.registrations, &have = got.registrations;
  for (std::size_t i = 0; i < std::max(want.size(), have.size()); ++i) {
    HFTA_CHECK(i < have.size(), start, "nothing where lane 0 has ", kind(want[i]));
    HFTA_CHECK(i < want.size(), start, kind(have[i]), " ", tensor_of(got, have[i]).sizes(), " where lane 0 has nothing");
    HFTA_CHECK(want[i].name == have[i].name, start, kind(have[i]), " where lane 0 has ", kind(want[i]));
    check_same_tensor(expected, got, i, start);
  }
}

}  // namespace hfta::lanes
