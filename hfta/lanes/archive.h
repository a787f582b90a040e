#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace hfta::lanes {

/// Writes dicts, lists, tuples, strings, numbers, bools, None and tensors as Python's `torch.save` does:
/// `torch.load(path, weights_only=True)` gives the same value. Tensors are written as dense CPU tensors, a view as its own part only,
/// equal views of one memory once. The file appears whole or not at all: it is written beside `path`, synced and renamed.
/// @throws Error in one line when it cannot be written; Unsupported for other values, naming their kind.
void save_archive(const std::string& path, const c10::IValue& value);

/// Reads such a file, or one that `torch.save` wrote: dicts (`OrderedDict` too) with their order, tensors on the CPU, parameters as tensors.
/// Only plain data is made: no code in the file is run.
/// @throws Error when the file cannot be read; InvalidArgument when it is damaged or holds something else, naming that.
c10::IValue load_archive(const std::string& path);

}  // namespace hfta::lanes
