#include "checkpoint/zarr_json.h"

#include <set>
#include <vector>

namespace ulmus::checkpoint {

Result<Json> ParseStrictJson(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  std::string error;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxJsonDepth && error.empty())
      error = fmt::format("nested deeper than {} levels", kMaxJsonDepth);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get_ref<const std::string&>()).second &&
        error.empty())
      error = fmt::format("key '{}' stands twice in one object", JsonExcerpt(parsed));
    return error.empty();  // what follows an error is dropped, not stored
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), watch);
    if (!error.empty()) return InvalidArgumentError("{}", error);
    return value;
  } catch (const Json::exception& e) {
    if (!error.empty()) return InvalidArgumentError("{}", error);
    return InvalidArgumentError("{}", e.what());
  }
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonExcerpt(const Json& value, size_t limit) {
  std::string text = JsonText(value);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

}  // namespace ulmus::checkpoint
