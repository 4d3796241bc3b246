#include "base/json.h"

#include <set>
#include <vector>

namespace ulmus {
namespace {

// Looks at every event of the parser and builds nothing.
class StrictReader : public nlohmann::json_sax<Json> {
 public:
  explicit StrictReader(int max_depth) : max_depth_(max_depth) {}
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }

  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    error_ = fmt::format("key {} stands twice in one object", JsonExcerpt(Json(key)));
    return false;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    error_ = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = error_.find("] "); end != std::string::npos) error_.erase(0, end + 2);
    return false;
  }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= max_depth_) return true;
    error_ = fmt::format("nested deeper than {} levels", max_depth_);
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  const int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of what is open, outermost first; arrays have none
  std::string error_;
};

template <class Value>
Result<Value> Parse(std::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    return InvalidArgumentError("{} bytes of JSON, more than the limit of {}", text.size(),
                                limits.max_bytes);
  // The parser takes a NUL for the end of the text, whatever follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return InvalidArgumentError("NUL byte at byte {}", nul);
  StrictReader reader(limits.max_depth);
  if (!Json::sax_parse(text.begin(), text.end(), &reader))
    return InvalidArgumentError("{}", reader.error());
  Value value = Value::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return InvalidArgumentError("not a JSON text");
  return value;
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  return Parse<Json>(text, limits);
}

Result<OrderedJson> ParseOrderedJson(std::string_view text, const JsonLimits& limits) {
  return Parse<OrderedJson>(text, limits);
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonExcerpt(const Json& value, size_t limit) {
  std::string text = JsonText(value);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

}  // namespace ulmus
