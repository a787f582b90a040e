#pragma once

#include <torch/nn/pimpl.h>

#include <initializer_list>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/lanes/array.h"

namespace hfta::lanes {

/// Where a lane's module is now: tells a handle whether the array's lanes have moved since it was taken.
class LanePlace {
 public:
  LanePlace(const ArrayBase& array, std::int64_t lane);
  /// @throws InvalidArgument when the module was moved to another lane or dropped since. An array that is gone is no error.
  void check() const;

 private:
  std::weak_ptr<const Roster> roster_;
  std::weak_ptr<torch::nn::Module> module_;
  std::int64_t lane_;
};

/// Makes `Net net(lane)` a conversion: a holder's constructor would take the handle for an argument of the module otherwise.
template <typename Net>
struct LaneKind {};
template <typename Net>
  requires requires { typename Net::ContainedType; }
struct LaneKind<Net> : torch::detail::ModuleHolderIndicator {
  using ContainedType = typename Net::ContainedType;
};

/// A lane as `Array::lane` gives it: the plain module, and a handle that says so when the array's lanes have moved since.
template <typename Net>
class Lane : public LaneKind<Net> {
 public:
  Lane(const ArrayBase& array, std::int64_t lane, Net net) : place_(array, lane), net_(std::move(net)) {}
  auto& operator*() const { return place_.check(), *net_; }
  auto* operator->() const { return place_.check(), const_cast<Net&>(net_).get(); }
  operator Net() const { return place_.check(), net_; }  // NOLINT(google-explicit-constructor): a lane is used as the plain module it is
  const Net& net() const { return place_.check(), net_; }

 private:
  LanePlace place_;
  Net net_;
};

/// Asks `Array::lane` for a module with memory of its own.
struct Copy {};
inline constexpr Copy copy{};

/// Seeds 0, 1, ..., lanes - 1.
inline std::vector<std::uint64_t> seeds_of(std::int64_t lanes) {
  std::vector<std::uint64_t> seeds(lanes > 0 ? lanes : 0);
  std::iota(seeds.begin(), seeds.end(), std::uint64_t{0});
  return seeds;
}

/// An array whose lanes are `Net`s: a `TORCH_MODULE` holder, or a `std::shared_ptr` to a module class.
///
/// The factory is kept for copies of lanes: what it captures by reference must live as long as these are asked for.
template <typename Net>
class Array : public ArrayBase {
 public:
  using Build = std::function<Net(std::int64_t lane)>;

  /// Lane `i` is built with seed `i`.
  Array(std::int64_t lanes, Build build) : Array(seeds_of(lanes), std::move(build)) {}
  Array(std::initializer_list<std::uint64_t> seeds, Build build) : Array(std::vector(seeds), std::move(build)) {}
  Array(std::vector<std::uint64_t> seeds, Build build) : ArrayBase(plain(build), std::move(seeds)), build_(std::move(build)) {}

  /// The lane's module, its tensors rows of the array. @throws InvalidArgument for a lane out of range.
  Lane<Net> lane(std::int64_t lane) const { return {*this, lane, net(module(lane))}; }
  /// A module of its own with the lane's values.
  Net lane(std::int64_t lane, Copy) const { return net(free_copy(lane, plain(build_))); }

  using ArrayBase::append;
  void append(const std::vector<std::uint64_t>& seeds) { append(plain(build_), seeds); }

 private:
  static auto pointer(const Net& net) {
    if constexpr (requires { net.ptr(); }) return net.is_empty() ? std::remove_cvref_t<decltype(net.ptr())>() : net.ptr();
    else return net;
  }
  static Factory plain(const Build& build) {
    return [build](std::int64_t lane) -> Module { return pointer(build(lane)); };
  }
  static Net net(const Module& module) { return Net(std::dynamic_pointer_cast<typename decltype(pointer(std::declval<const Net&>()))::element_type>(module)); }

  Build build_;
};

}  // namespace hfta::lanes

namespace hfta {
using lanes::Array;
}  // namespace hfta
