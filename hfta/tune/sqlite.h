#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

struct sqlite3;
struct sqlite3_stmt;

// The few of SQLite's calls that the study needs, owned and checked. For sources only.
namespace hfta::tune {

class Database;

/// A prepared statement: bound in order, stepped row by row.
class Statement {
 public:
  ~Statement();
  Statement(Statement&&) noexcept;
  Statement& operator=(Statement&&) = delete;

  Statement& bind(std::int64_t value);
  Statement& bind(double value);
  Statement& bind(const std::string& value);
  Statement& bind(std::nullptr_t);

  /// Steps to the next row; false after the last. @throws as `Database`.
  bool next();
  bool is_null(int column) const;
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;

 private:
  friend class Database;
  Statement(Database& database, sqlite3_stmt* statement) : database_(&database), statement_(statement) {}
  Database* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

enum class Access { Read, Write, Create };

/// A connection. Every failure is a `hfta::Error` of one line that names the file.
class Database {
 public:
  Database(std::string path, Access access, std::chrono::milliseconds patience);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Statement prepare(const std::string& sql);
  /// Runs one or several statements without results.
  void run(const std::string& sql);
  template <typename... Values>
  void run(const std::string& sql, const Values&... values) {
    auto statement = prepare(sql);
    (statement.bind(values), ...);
    statement.next();
  }
  /// As `run`, false at once where another process is in the way.
  bool try_run(const std::string& sql);
  std::int64_t last_id() const;
  const std::string& path() const { return path_; }
  int why_not_opened() const;
  [[noreturn]] void fail(int code) const;

 private:
  int open(const std::string& name, int flags);
  std::string path_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
};

/// All or nothing: undone unless committed. Writing ones wait for each other, so what they read stays true while they write.
class Transaction {
 public:
  Transaction(Database& database, Access access);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace hfta::tune
