#include "base/status.h"

#include <array>

namespace ulmus {

std::string StatusCodeName(StatusCode code) {
  constexpr std::array<const char*, 17> kNames = {"kOk",
                                                  "kCancelled",
                                                  "kUnknown",
                                                  "kInvalidArgument",
                                                  "kDeadlineExceeded",
                                                  "kNotFound",
                                                  "kAlreadyExists",
                                                  "kPermissionDenied",
                                                  "kResourceExhausted",
                                                  "kFailedPrecondition",
                                                  "kAborted",
                                                  "kOutOfRange",
                                                  "kUnimplemented",
                                                  "kInternal",
                                                  "kUnavailable",
                                                  "kDataLoss",
                                                  "kUnauthenticated"};
  const auto index = static_cast<size_t>(code);
  if (index < kNames.size()) return kNames[index];
  return fmt::format("kUnknown({})", static_cast<int>(code));
}

std::string Status::ToString() const {
  return ok() ? "ok" : StatusCodeName(code_) + ": " + message_;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return {code_, fmt::format("{}: {}", context, message_)};
}

ExitCode ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kDataLoss:
      return kExitDataLoss;
    default:
      return kExitFailure;
  }
}

}  // namespace ulmus
