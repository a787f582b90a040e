#include "hfta/tune/study_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::tune {
namespace {

std::string read_owner(int file) {
  char text[256];
  const auto size = pread(file, text, sizeof text, 0);
  const std::string owner(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  return owner.empty() ? "another process" : owner.substr(0, owner.find('\n'));
}

// The holder removes the file when it is done: what was locked may no longer be the file of that name.
bool is_still(int file, const std::string& path) {
  struct stat own {}, named {};
  return fstat(file, &own) == 0 && stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

void write_owner(int file) {
  const auto owner = this_process() + "\n";
  // Only a help for people: the lock itself is the kernel's.
  if (ftruncate(file, 0) == 0) [[maybe_unused]] const auto written = pwrite(file, owner.data(), owner.size(), 0);
}

}  // namespace

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return base::message("process ", getpid(), " on host ", host);
}

std::string StudyLock::resolved(const std::string& path) {
  std::error_code ignored;
  const auto full = std::filesystem::weakly_canonical(path, ignored);
  return full.empty() ? path : full.string();
}

StudyLock::StudyLock(const std::string& study) : study_(resolved(study)) {
  const auto path = study_ + ".lock";
  for (;;) {
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) throw Error(base::message("tune::StudyLock: expected a file that can be written, got \"", path, "\" (", std::strerror(errno), ")"));
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      const int why = errno;
      const auto owner = read_owner(file_);
      close(std::exchange(file_, -1));
      if (why == EINTR) continue;
      if (why == EWOULDBLOCK) throw Error(base::message("tune::StudyLock: expected \"", study, "\" to be free, got it in use by ", owner));
      throw Error(base::message("tune::StudyLock: expected a file system with locks, got \"", path, "\" (", std::strerror(why), ")"));
    }
    if (is_still(file_, path)) break;
    close(std::exchange(file_, -1));
  }
  write_owner(file_);
}

StudyLock::StudyLock(StudyLock&& other) noexcept : study_(std::move(other.study_)), file_(std::exchange(other.file_, -1)) {}

StudyLock::~StudyLock() {
  if (file_ < 0) return;
  unlink((study_ + ".lock").c_str());  // before the lock is given back: who waits then finds a new file
  close(file_);
}

}  // namespace hfta::tune
