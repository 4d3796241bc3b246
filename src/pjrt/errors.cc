#include "pjrt/errors.h"

#include <algorithm>

namespace ulmus::pjrt {
namespace {

// Cuts `text` where the traces that plugins append begin.
std::string_view DropTraces(std::string_view text) {
  for (const std::string_view mark :
       {"=== Source Location Trace", "*** Begin stack trace", "Suspected Python Code Location:"}) {
    text = text.substr(0, text.find(mark));
  }
  return text;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "-:3:10: error: ..."
bool IsParserError(std::string_view text) {
  if (!text.starts_with("-:")) return false;
  const size_t end = std::min(text.find_first_not_of("0123456789:", 2), text.size());
  return text.substr(end).starts_with(" error: ");
}

StatusCode CodeFor(int code, std::string_view text) {
  if (IsParserError(text)) return StatusCode::kInvalidArgument;
  if (Contains(text, "No such compile option") || text.starts_with("While setting option"))
    return StatusCode::kInvalidArgument;
  if (Contains(text, "CompileTimeHbmOom") || Contains(text, "exceeds available HBM"))
    return StatusCode::kResourceExhausted;
  if (code <= 0 || code > static_cast<int>(StatusCode::kUnauthenticated))
    return StatusCode::kUnknown;
  return static_cast<StatusCode>(code);
}

}  // namespace

std::string CleanMessage(std::string_view message) {
  message = DropTraces(message);
  std::string clean;
  while (!message.empty()) {
    const size_t end = message.find('\n');
    const std::string_view line = message.substr(0, end);
    message = end == std::string_view::npos ? std::string_view() : message.substr(end + 1);
    if (Contains(line, "Failed to parse using StableHLO v")) continue;
    clean += line;
    clean += '\n';
  }
  const size_t last = clean.find_last_not_of(" \n\t");
  clean.resize(last == std::string::npos ? 0 : last + 1);
  return clean;
}

Status MakeStatus(int code, std::string_view message) {
  std::string clean = CleanMessage(message);
  if (clean.empty()) clean = "the plugin gave no message";
  const StatusCode status_code = CodeFor(code, clean);
  return {status_code, std::move(clean)};
}

}  // namespace ulmus::pjrt
