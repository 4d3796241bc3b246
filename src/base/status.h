// Errors as values. Status is the error type of the whole program, Result<T> a value or a Status;
// TRY unwraps either or returns the error to the caller. For broken invariants of our own code use
// CHECK (base/check.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace ulmus {

// The canonical codes shared by PJRT and XLA FFI (PJRT_Error_Code, XLA_FFI_Error_Code), same
// numbers.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // the only code that is retried
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "kDataLoss" and so on; "kUnknown(99)" for a number outside the list.
std::string StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "kNotFound: message", or "ok".
  std::string ToString() const;
  // The same error with "context: " before its message; ok stays ok.
  Status WithContext(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A T or the Status that says why there is none. Never holds an ok Status.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Status> {
  using Base = tl::expected<T, Status>;

 public:
  Result(Status error) : Base(tl::unexpect, std::move(error)) {}
  template <class U = T>
    requires(std::is_constructible_v<T, U&&> && !std::is_same_v<std::remove_cvref_t<U>, Status> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value) : Base(tl::in_place, std::forward<U>(value)) {}

  bool ok() const { return this->has_value(); }
  // The error, or ok.
  Status status() const { return ok() ? Status() : this->error(); }
};

// One factory per code, with a {fmt} format: `return NotFoundError("{}: no such tensor", name);`
#define ULMUS_DEFINE_ERROR(Name)                                                    \
  template <class... Args>                                                          \
  Status Name##Error(fmt::format_string<Args...> format, Args&&... args) {          \
    return {StatusCode::k##Name, fmt::format(format, std::forward<Args>(args)...)}; \
  }
ULMUS_DEFINE_ERROR(Cancelled)
ULMUS_DEFINE_ERROR(Unknown)
ULMUS_DEFINE_ERROR(InvalidArgument)
ULMUS_DEFINE_ERROR(DeadlineExceeded)
ULMUS_DEFINE_ERROR(NotFound)
ULMUS_DEFINE_ERROR(AlreadyExists)
ULMUS_DEFINE_ERROR(PermissionDenied)
ULMUS_DEFINE_ERROR(ResourceExhausted)
ULMUS_DEFINE_ERROR(FailedPrecondition)
ULMUS_DEFINE_ERROR(Aborted)
ULMUS_DEFINE_ERROR(OutOfRange)
ULMUS_DEFINE_ERROR(Unimplemented)
ULMUS_DEFINE_ERROR(Internal)
ULMUS_DEFINE_ERROR(Unavailable)
ULMUS_DEFINE_ERROR(DataLoss)
ULMUS_DEFINE_ERROR(Unauthenticated)
#undef ULMUS_DEFINE_ERROR

// Exit codes of the program (docs/architecture.md).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,       // the command line or recipe is wrong: do not retry
  kExitDataLoss = 3,    // data or a checkpoint is damaged
  kExitNotHolding = 4,  // a comparison or verification did not hold
  kExitRequeue = 75,    // stopped by a signal after a complete save
};
// kInvalidArgument -> 2, kDataLoss -> 3, ok -> 0, anything else -> 1.
ExitCode ExitCodeFor(const Status& status);

namespace internal {
inline Status ErrorOf(Status& status) { return std::move(status); }
template <class T>
Status ErrorOf(Result<T>& result) {
  return std::move(result.error());
}
inline void ValueOf(Status&) {}
template <class T>
T ValueOf(Result<T>& result) {
  return std::move(*result);
}
}  // namespace internal

// `T x = TRY(F());` gives F's value or returns its error; `TRY(G());` does the same for a Status.
#define TRY(...)                                      \
  __extension__({                                     \
    auto try_result_ = (__VA_ARGS__);                 \
    if (!try_result_.ok()) [[unlikely]]               \
      return ::ulmus::internal::ErrorOf(try_result_); \
    ::ulmus::internal::ValueOf(try_result_);          \
  })

}  // namespace ulmus
