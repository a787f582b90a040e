#pragma once

#include <string>

namespace hfta::tune {

/// Holds a study for this process: a second sweep on it is refused. An advisory lock on the file `<study>.lock` beside the study, which
/// the kernel gives back when the process dies in whatever way; reading the study needs no lock.
class StudyLock {
 public:
  /// @throws Error naming the process and machine that hold the study.
  explicit StudyLock(const std::string& study);
  ~StudyLock();
  StudyLock(StudyLock&& other) noexcept;
  StudyLock& operator=(StudyLock&&) = delete;

  /// The study's path, links resolved.
  const std::string& study() const { return study_; }
  static std::string resolved(const std::string& path);

 private:
  std::string study_;
  int file_ = -1;
};

/// "process 123 on host x": who this is, as locks and trials tell it.
std::string this_process();

}  // namespace hfta::tune
