#include "hfta/plan/cache.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hfta/base/error.h"
#include "hfta/base/log.h"

namespace hfta::plan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCacheFormat = 1;
constexpr std::size_t kMostFiles = 500;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::ostringstream out;
  out << std::put_time(&parts, "%Y-%m-%d");
  return out.str();
}

json json_of(const Timing& timing) {
  return {{"plan", json::parse(to_json(timing.plan))}, {"step_ms", timing.step_ms}, {"predicted_ms", timing.predicted_ms}, {"is_pruned", timing.is_pruned}, {"error", timing.error}};
}

Timing timing_of(const json& entry, const std::string& source) {
  return {.plan = from_json(entry.at("plan").dump(), source),
          .step_ms = entry.at("step_ms"),
          .error = entry.at("error"),
          .predicted_ms = entry.at("predicted_ms"),
          .is_pruned = entry.at("is_pruned")};
}

void remove_oldest(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".json") files.emplace_back(entry.last_write_time(ignored), entry.path());
  if (files.size() <= kMostFiles) return;
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i < files.size() - kMostFiles; ++i) fs::remove(files[i].second, ignored);
}

}  // namespace

std::optional<fs::path> Cache::default_folder() {
  if (const auto named = variable("HFTA_PLAN_CACHE"); !named.empty()) return named == "off" ? std::nullopt : std::optional<fs::path>(named);
  if (const auto base = variable("XDG_CACHE_HOME"); !base.empty()) return fs::path(base) / "hfta" / "plans";
  if (const auto home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "hfta" / "plans";
  return std::nullopt;
}

fs::path Cache::file(const std::string& key) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a: the same in every process
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::ostringstream name;
  name << std::hex << std::setw(16) << std::setfill('0') << hash << ".json";
  return folder_ / name.str();
}

std::optional<SearchResult> Cache::find(const std::string& key) const {
  const auto path = file(key);
  std::ifstream in(path);
  if (!in) return std::nullopt;
  try {
    const auto content = json::parse(in);
    HFTA_CHECK(content.at("format") == kCacheFormat, "expected format ", kCacheFormat, ", got ", content.at("format").dump());
    if (content.at("key") != key) return std::nullopt;  // two keys of one name
    SearchResult result{.plan = from_json(content.at("plan").dump(), path.string()), .step_ms = content.at("step_ms")};
    for (const auto& entry : content.at("timings")) result.timings.push_back(timing_of(entry, path.string()));
    result.explanation = content.at("explanation").get<std::string>() + ", as measured on " + content.at("date").get<std::string>() + " and kept in " + path.string();
    return result;
  } catch (const std::exception& error) {
    base::log(base::LogLevel::Warning, "plan::Cache: " + path.string() + " is left alone, the plan is searched anew: " + error.what());
    return std::nullopt;
  }
}

void Cache::store(const std::string& key, const SearchResult& result) const {
  json content{{"format", kCacheFormat}, {"key", key}, {"plan", json::parse(to_json(result.plan))}, {"step_ms", result.step_ms}, {"explanation", result.explanation}, {"date", today()}, {"timings", json::array()}};
  for (const auto& timing : result.timings) content["timings"].push_back(json_of(timing));
  const auto path = file(key);
  const auto fresh = path.string() + "." + std::to_string(getpid()) + ".new";
  try {
    fs::create_directories(folder_);
    std::ofstream out(fresh);
    out << content.dump(1) << '\n';
    out.close();
    HFTA_CHECK(out, "could not write ", fresh);
    fs::rename(fresh, path);
    remove_oldest(folder_);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
    base::log_once(base::LogLevel::Warning, "plan::Cache: the plan is not kept in " + folder_.string() + ": " + error.what());
  }
}

}  // namespace hfta::plan
