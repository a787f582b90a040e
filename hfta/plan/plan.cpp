#include "hfta/plan/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "hfta/base/error.h"

namespace hfta::plan {
namespace {

constexpr int kFormat = 1;
constexpr std::array<std::string_view, 4> kPrecisions{"float32", "float64", "bfloat16", "float16"};
constexpr std::array<std::string_view, 9> kKeys{"device",    "format",   "intra_op_threads", "lowerings", "measures_lowerings",
                                                "precision", "recorded", "width",            "workers"};

template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "cpu", "cuda", "cuda:1": whether the machine has it is for who runs the plan to say.
bool names_a_device(const std::string& device) {
  const auto colon = device.find(':');
  const std::string type = device.substr(0, colon);
  if (type != "cpu" && type != "cuda" && type != "xpu" && type != "mps") return false;
  if (colon == std::string::npos) return true;
  const std::string index = device.substr(colon + 1);
  return !index.empty() && index.size() < 4 && std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::int64_t integer(const nlohmann::json& object, const char* key, const std::string& source) {
  const auto& value = object.at(key);
  HFTA_CHECK(value.is_number_integer(), "plan::Plan: ", source, ": expected an integer for \"", key, "\", got ", value.dump());
  return value.get<std::int64_t>();
}

bool truth(const nlohmann::json& object, const char* key, const std::string& source) {
  const auto& value = object.at(key);
  HFTA_CHECK(value.is_boolean(), "plan::Plan: ", source, ": expected true or false for \"", key, "\", got ", value.dump());
  return value.get<bool>();
}

std::string text(const nlohmann::json& value, const std::string& key, const std::string& source) {
  HFTA_CHECK(value.is_string(), "plan::Plan: ", source, ": expected a string for \"", key, "\", got ", value.dump());
  return value.get<std::string>();
}

void check_keys(const nlohmann::json& object, const std::string& source) {
  for (const auto& [key, value] : object.items())
    HFTA_CHECK(std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end(), "plan::Plan: ", source, ": expected one of ", listed(kKeys),
               ", got the key \"", key, "\"");
  for (const auto key : kKeys)
    HFTA_CHECK(object.contains(std::string(key)), "plan::Plan: ", source, ": expected the key \"", key, "\", got none");
}

}  // namespace

std::string describe(const Plan& plan) {
  std::string text = plan.recorded ? counted(plan.width, "lane") + " x " : "";
  text += counted(plan.workers, "worker") + " x " + counted(plan.intra_op_threads, "thread");
  return text + ", " + (plan.recorded ? "recorded" : "plain") + ", " + plan.device + ", " + plan.precision;
}

std::int64_t groups(const Plan& plan, std::int64_t lanes) { return (lanes + plan.width - 1) / plan.width; }

void validate(const Plan& plan, std::int64_t lanes) {
  HFTA_CHECK(lanes >= 1, "plan::Plan: expected an array of at least 1 lane, got ", lanes);
  HFTA_CHECK(plan.width >= 1 && plan.width <= lanes, "plan::Plan: expected a width from 1 to ", lanes, " (the array's lanes), got ", plan.width);
  HFTA_CHECK(plan.workers >= 1 && plan.workers <= groups(plan, lanes), "plan::Plan: expected from 1 to ", groups(plan, lanes),
             " workers (the groups of ", lanes, " lanes at width ", plan.width, "), got ", plan.workers);
  HFTA_CHECK(plan.intra_op_threads >= 1, "plan::Plan: expected at least 1 intra-op thread, got ", plan.intra_op_threads);
  HFTA_CHECK(names_a_device(plan.device), "plan::Plan: expected a device such as cpu or cuda:0, got \"", plan.device, "\"");
  HFTA_CHECK(std::find(kPrecisions.begin(), kPrecisions.end(), plan.precision) != kPrecisions.end(), "plan::Plan: expected one of ",
             listed(kPrecisions), " as precision, got \"", plan.precision, "\"");
}

Plan fitted(Plan plan, std::int64_t lanes) {
  plan.width = std::clamp<std::int64_t>(plan.width, 1, std::max<std::int64_t>(lanes, 1));
  plan.workers = std::clamp<std::int64_t>(plan.workers, 1, std::max<std::int64_t>(groups(plan, lanes), 1));
  return plan;
}

std::string to_json(const Plan& plan) {
  const nlohmann::json object = {{"format", kFormat},
                                 {"width", plan.width},
                                 {"workers", plan.workers},
                                 {"intra_op_threads", plan.intra_op_threads},
                                 {"recorded", plan.recorded},
                                 {"device", plan.device},
                                 {"precision", plan.precision},
                                 {"lowerings", plan.lowerings},
                                 {"measures_lowerings", plan.measures_lowerings}};
  return object.dump(2) + "\n";
}

Plan from_json(const std::string& json, const std::string& source) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  HFTA_CHECK(object.is_object(), "plan::Plan: ", source, ": expected a JSON object, got ", object.is_discarded() ? "text that is no JSON" : object.type_name());
  HFTA_CHECK(object.contains("format"), "plan::Plan: ", source, ": expected the key \"format\", got none");
  HFTA_CHECK(integer(object, "format", source) == kFormat, "plan::Plan: ", source, ": expected format ", kFormat, ", got ", object.at("format").dump());
  check_keys(object, source);
  Plan plan;
  plan.width = integer(object, "width", source);
  plan.workers = integer(object, "workers", source);
  const auto threads = integer(object, "intra_op_threads", source);
  HFTA_CHECK(threads >= 1 && threads <= std::numeric_limits<int>::max(), "plan::Plan: ", source,
             ": expected at least 1 intra-op thread, got ", threads);
  plan.intra_op_threads = static_cast<int>(threads);
  plan.recorded = truth(object, "recorded", source);
  plan.measures_lowerings = truth(object, "measures_lowerings", source);
  plan.device = text(object.at("device"), "device", source);
  plan.precision = text(object.at("precision"), "precision", source);
  HFTA_CHECK(object.at("lowerings").is_object(), "plan::Plan: ", source, ": expected an object for \"lowerings\", got ", object.at("lowerings").dump());
  for (const auto& [key, value] : object.at("lowerings").items()) plan.lowerings[key] = text(value, key, source);
  HFTA_CHECK(plan.width >= 1, "plan::Plan: ", source, ": expected a width of at least 1, got ", plan.width);
  HFTA_CHECK(plan.workers >= 1, "plan::Plan: ", source, ": expected at least 1 worker, got ", plan.workers);
  return plan;
}

}  // namespace hfta::plan
