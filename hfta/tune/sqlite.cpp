#include "hfta/tune/sqlite.h"

#include <unistd.h>

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "hfta/base/error.h"

namespace hfta::tune {

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_) {}
Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(std::int64_t value) {
  if (const int code = sqlite3_bind_int64(statement_, ++bound_, value)) database_->fail(code);
  return *this;
}
Statement& Statement::bind(double value) {
  if (const int code = sqlite3_bind_double(statement_, ++bound_, value)) database_->fail(code);
  return *this;
}
Statement& Statement::bind(const std::string& value) {
  if (const int code = sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT)) database_->fail(code);
  return *this;
}
Statement& Statement::bind(std::nullptr_t) {
  if (const int code = sqlite3_bind_null(statement_, ++bound_)) database_->fail(code);
  return *this;
}

bool Statement::next() {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_->fail(code);
  return code == SQLITE_ROW;
}

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::real(int column) const { return sqlite3_column_double(statement_, column); }
std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text ? std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : std::string();
}

namespace {

// A name in SQLite's URI form, for options that only that form takes.
std::string uri(const std::string& path, const std::string& options) {
  std::string text = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      const char* digits = "0123456789abcdef";
      ((text += '%') += digits[c >> 4]) += digits[c & 15];
    } else {
      text += c;
    }
  }
  return text + "?" + options;
}

}  // namespace

Database::Database(std::string path, Access access, std::chrono::milliseconds patience)
    : path_(std::move(path)), patience_(patience), handle_(nullptr, sqlite3_close_v2) {
  const int flags = access == Access::Read ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | (access == Access::Create ? SQLITE_OPEN_CREATE : 0);
  if (const int code = open(path_, flags)) fail(code);
  if (access != Access::Read) return;
  const int code = sqlite3_exec(handle_.get(), "PRAGMA schema_version", nullptr, nullptr, nullptr);
  if (code != SQLITE_CANTOPEN && code != SQLITE_READONLY) return;
  // Reading wants a file beside the study, which a folder that only others may write does not take. Where no log says that someone
  // writes, the study does not change and can be read without.
  if (!std::filesystem::exists(path_ + "-wal"))
    if (const int again = open(uri(path_, "immutable=1"), flags | SQLITE_OPEN_URI)) fail(again);
}

int Database::open(const std::string& name, int flags) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags, nullptr);
  handle_.reset(handle);
  sqlite3_busy_timeout(handle, static_cast<int>(patience_.count()));
  return code;
}

Database::~Database() = default;

Statement Database::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (const int code = sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &statement, nullptr)) fail(code);
  return {*this, statement};
}

void Database::run(const std::string& sql) {
  if (const int code = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr)) fail(code);
}

bool Database::try_run(const std::string& sql) {
  sqlite3_busy_timeout(handle_.get(), 0);
  const int code = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  sqlite3_busy_timeout(handle_.get(), static_cast<int>(patience_.count()));
  if ((code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED) return false;
  if (code != SQLITE_OK) fail(code);
  return true;
}

std::int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_.get()); }

int Database::why_not_opened() const {
  const int why = sqlite3_system_errno(handle_.get());
  // Where a file may not be made, SQLite tries to read it and tells of that.
  const auto folder = std::filesystem::absolute(path_).parent_path();
  return why == ENOENT && access(folder.c_str(), F_OK) == 0 && access(folder.c_str(), W_OK) != 0 ? errno : why;
}

void Database::fail(int code) const {
  const auto text = [this](const char* what) { return base::message("tune::Study: expected ", what, " \"", path_, "\""); };
  switch (code & 0xff) {
    case SQLITE_NOTADB: throw Error(base::message("tune::Study: expected an Optuna study, got \"", path_, "\", which is no SQLite file"));
    case SQLITE_CANTOPEN: throw Error(text("a file that can be opened, got") + " (" + std::strerror(why_not_opened()) + ")");
    case SQLITE_READONLY: throw Error(text("a file that can be written, got"));
    case SQLITE_FULL: throw Error(base::message("tune::Study: expected room to write \"", path_, "\", got a full disk; what was stored before is kept"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(base::message("tune::Study: expected to write \"", path_, "\" within ", patience_.count(), " ms, got it held by another process"));
    default:
      throw Error(base::message("tune::Study: expected to read and write \"", path_, "\", got \"", sqlite3_errmsg(handle_.get()), "\" (SQLite ",
                                sqlite3_extended_errcode(handle_.get()), "); what was stored before is kept"));
  }
}

Transaction::Transaction(Database& database, Access access) : database_(database) { database.run(access == Access::Read ? "BEGIN" : "BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const Error&) {  // SQLite has already undone it after an error of the disk
  }
}

void Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

}  // namespace hfta::tune
