#include "metrics/record_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/json.h"
#include "metrics/derived/table.h"
#include "metrics/step_fields.h"

namespace ulmus::metrics {
namespace {

using Json = OrderedJson;

// --- Writing

// Builds one JSON object. A document tree would cost more than the step's other bookkeeping.
class ObjectWriter {
 public:
  void Key(std::string_view name) {
    text_ += text_.size() > 1 ? "," : "";
    Quote(name);
    text_ += ':';
    // A nested object starts after this key.
  }
  void Add(std::string_view name, int64_t value) {
    Key(name);
    fmt::format_to(std::back_inserter(text_), "{}", value);
  }
  void Add(std::string_view name, double value) {
    Key(name);
    Number(value);
  }
  void Add(std::string_view name, std::string_view value) {
    Key(name);
    Quote(value);
  }
  template <class T>
  void Add(std::string_view name, const std::optional<T>& value) {
    if (value) Add(name, *value);
  }
  void Add(std::string_view name, const std::vector<NamedValue>& values) {
    Key(name);
    text_ += '{';
    for (size_t k = 0; k < values.size(); ++k) {
      if (k > 0) text_ += ',';
      Quote(values[k].name);
      text_ += ':';
      Number(values[k].value);
    }
    text_ += '}';
  }
  std::string Finish() && { return std::move(text_) + "}"; }

 private:
  // The shortest text that reads back as the same bits. JSON has no word for what is not finite,
  // and readers take "-0" for an integer.
  void Number(double value) {
    if (value == 0 && std::signbit(value))
      text_ += "-0.0";
    else if (std::isfinite(value))
      fmt::format_to(std::back_inserter(text_), "{}", value);
    else
      Quote(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
  }
  void Quote(std::string_view value) {
    const auto plain = [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; };
    if (std::all_of(value.begin(), value.end(), plain)) {
      text_ += '"';
      text_ += value;
      text_ += '"';
      return;
    }
    text_ += Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  std::string text_ = "{";
};

std::string ToJson(const StepRecord& record) {
  ObjectWriter out;
  out.Add("kind", "step");
  VisitStepFields(record, [&](std::string_view name, std::string_view, const auto& value) {
    out.Add(name, value);
  });
  out.Add("id_hash", record.id_hash);
  if (!record.norms.empty()) out.Add("norms", record.norms);
  for (const DerivedMetric& metric : DerivedMetrics()) out.Add(metric.name, metric.compute(record));
  return std::move(out).Finish();
}

std::string ToJson(const EvalRecord& record) {
  ObjectWriter out;
  out.Add("kind", "eval");
  out.Add("step", record.step);
  out.Add("set", record.set);
  out.Add("loss_sum", record.loss.sum);
  out.Add("count", record.loss.count);
  out.Add("loss", record.loss.mean());
  out.Add("wall_time_s", record.wall_time_s);
  return std::move(out).Finish();
}

std::string ToJson(const EventRecord& record) {
  ObjectWriter out;
  out.Add("kind", "event");
  out.Add("step", record.step);
  out.Add("name", record.name);
  out.Add("text", record.text);
  out.Add("wall_time_s", record.wall_time_s);
  return std::move(out).Finish();
}

// --- Reading

std::optional<double> ToDouble(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Takes fields out of one object and remembers the first that is missing or of another type.
class ObjectReader {
 public:
  explicit ObjectReader(const Json& object) : object_(object) {}

  void Take(std::string_view name, int64_t& value) {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX))
      return Fail(name, "an integer");
    value = found->get<int64_t>();
  }
  void Take(std::string_view name, double& value) {
    const Json* found = Find(name);
    const std::optional<double> number = found == nullptr ? std::nullopt : ToDouble(*found);
    if (!number) return Fail(name, "a number");
    value = *number;
  }
  void Take(std::string_view name, std::string& value) {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_string()) return Fail(name, "a string");
    value = found->get<std::string>();
  }
  template <class T>
  void Take(std::string_view name, std::optional<T>& value) {
    value.reset();
    if (Find(name) != nullptr) Take(name, value.emplace());
  }
  void TakeOptional(std::string_view name, std::vector<NamedValue>& values) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_object()) return Fail(name, "an object of numbers");
    for (const auto& [key, item] : found->items()) {
      const std::optional<double> number = ToDouble(item);
      if (!number) return Fail(name, "an object of numbers");
      values.push_back({key, *number});
    }
  }
  Status status() const { return status_; }

 private:
  const Json* Find(std::string_view name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  void Fail(std::string_view name, std::string_view expected) {
    if (status_.ok()) status_ = DataLossError("\"{}\" is missing or not {}", name, expected);
  }

  const Json& object_;
  Status status_;
};

Result<Record> ReadStep(const Json& object) {
  StepRecord record;
  ObjectReader in(object);
  VisitStepFields(
      record, [&](std::string_view name, std::string_view, auto& value) { in.Take(name, value); });
  in.Take("id_hash", record.id_hash);
  in.TakeOptional("norms", record.norms);
  TRY(in.status());
  return Record(std::move(record));
}

Result<Record> ReadEval(const Json& object) {
  EvalRecord record;
  ObjectReader in(object);
  in.Take("step", record.step);
  in.Take("set", record.set);
  in.Take("loss_sum", record.loss.sum);
  in.Take("count", record.loss.count);
  in.Take("wall_time_s", record.wall_time_s);
  TRY(in.status());
  return Record(std::move(record));
}

Result<Record> ReadEvent(const Json& object) {
  EventRecord record;
  ObjectReader in(object);
  in.Take("step", record.step);
  in.Take("name", record.name);
  in.Take("text", record.text);
  in.Take("wall_time_s", record.wall_time_s);
  TRY(in.status());
  return Record(std::move(record));
}

}  // namespace

std::string ToJson(const Record& record) {
  return std::visit([](const auto& r) { return ToJson(r); }, record);
}

Result<Record> ParseRecord(std::string_view line) {
  const Result<Json> parsed = ParseOrderedJson(line);
  if (!parsed.ok()) return DataLossError("not a JSON object: {}", parsed.error().message());
  const Json& object = *parsed;
  if (!object.is_object()) return DataLossError("not a JSON object");
  const auto kind = object.find("kind");
  if (kind == object.end() || !kind->is_string())
    return DataLossError("\"kind\" is missing or not a string");
  if (*kind == "step") return ReadStep(object);
  if (*kind == "eval") return ReadEval(object);
  if (*kind == "event") return ReadEvent(object);
  return DataLossError("\"kind\" is {}; expected step, eval or event", kind->dump());
}

}  // namespace ulmus::metrics
