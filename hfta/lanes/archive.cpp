#include "hfta/lanes/archive.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "hfta/base/error.h"
#include "hfta/lanes/pickle.h"
#include "hfta/lanes/rows.h"

namespace hfta::lanes {
namespace {

/// A file beside `path` that takes its name when it is complete, and is gone otherwise.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path) {
    static std::atomic<unsigned> number{0};
    const std::filesystem::path target(path);
    temporary_ = (target.parent_path() / base::message(".", target.filename().string(), ".", getpid(), ".", number++, ".tmp")).string();
    descriptor_ = open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
  }
  ~NewFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// After an error all is taken in and nothing written: the archive writer's destructor writes too, and must not fail.
  std::size_t write(const void* data, std::size_t size) {
    for (std::size_t done = 0; done < size && error_ == 0;) {
      const auto written = ::write(descriptor_, static_cast<const char*>(data) + done, size - done);
      if (written >= 0) done += static_cast<std::size_t>(written);
      else if (errno != EINTR) error_ = errno;
    }
    return size;
  }

  void check() const {
    if (error_ != 0) fail(error_);
  }

  void publish() {
    check();
    if (fsync(descriptor_) != 0) fail(errno);
    const int descriptor = std::exchange(descriptor_, -1);
    if (close(descriptor) != 0) fail(errno);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    temporary_.clear();
    sync_folder();
  }

 private:
  [[noreturn]] void fail(int error) const { throw Error(base::message("lanes::save_archive: expected to write \"", path_, "\", got ", std::strerror(error))); }

  /// Makes the new name last; file systems that cannot are let be.
  void sync_folder() const {
    auto folder = std::filesystem::path(path_).parent_path().string();
    const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
  }

  std::string path_, temporary_;
  int descriptor_ = -1;
  int error_ = 0;
};

/// The tensor as its record holds it: dense, on the CPU, without conjugate or negative bit.
at::Tensor dense(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto strides = dense_strides(tensor);
  if (tensor.is_cpu() && tensor.strides() == strides && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  auto copy = at::empty_strided(tensor.sizes(), strides, at::TensorOptions(tensor.scalar_type()));
  return copy.copy_(tensor.detach());
}

void write_records(NewFile& file, const Pickled& pickled) {
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, std::size_t size) { return file.write(data, size); });
  archive.writeRecord("data.pkl", pickled.bytes.data(), pickled.bytes.size());
  archive.writeRecord("byteorder", "little", 6);
  for (std::size_t i = 0; i < pickled.records.size(); ++i) {
    const auto tensor = dense(pickled.records[i]);
    archive.writeRecord(base::message("data/", i), tensor.const_data_ptr(), tensor.numel() * tensor.element_size());
    file.check();
  }
  archive.writeEndOfFile();
}

void check_readable(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  const bool failed = descriptor < 0 || fstat(descriptor, &facts) != 0;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (failed) throw Error(base::message("lanes::load_archive: expected to read \"", path, "\", got ", std::strerror(error)));
  if (!S_ISREG(facts.st_mode)) throw Error(base::message("lanes::load_archive: expected to read \"", path, "\", got something that is not a file"));
}

std::string text_record(caffe2::serialize::PyTorchStreamReader& archive, const std::string& name) {
  const auto [data, size] = archive.getRecord(name);
  return {static_cast<const char*>(data.get()), size};
}

c10::IValue read_records(caffe2::serialize::PyTorchStreamReader& archive) {
  HFTA_CHECK(!archive.hasRecord("byteorder") || text_record(archive, "byteorder") == "little", "lanes::load_archive: expected little-endian data, got big-endian");
  std::map<std::string, at::Storage> storages;
  return unpickle(text_record(archive, "data.pkl"), [&](const std::string& key) {
    if (const auto known = storages.find(key); known != storages.end()) return known->second;
    auto [data, size] = archive.getRecord("data/" + key);
    return storages.emplace(key, at::Storage(at::Storage::use_byte_size_t(), static_cast<std::int64_t>(size), std::move(data))).first->second;
  });
}

}  // namespace

void save_archive(const std::string& path, const c10::IValue& value) {
  const auto pickled = pickle(value);
  NewFile file(path);
  write_records(file, pickled);
  file.publish();
}

c10::IValue load_archive(const std::string& path) {
  check_readable(path);
  try {
    caffe2::serialize::PyTorchStreamReader archive(path);
    return read_records(archive);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(base::message(error.what(), " in \"", path, "\""));
  } catch (const c10::Error&) {
    throw InvalidArgument(base::message("lanes::load_archive: expected an archive of torch.save, got a damaged, truncated or other file \"", path, "\""));
  }
}

}  // namespace hfta::lanes
