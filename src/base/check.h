// CHECK: invariants of our own code. A failed one prints the place, the condition and a message,
// and aborts. The world's failures (files, plugins, recipes) are Status values instead
// (base/status.h).
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <string>
#include <string_view>

namespace ulmus {

#ifdef __cpp_lib_source_location
using Loc = std::source_location;
#else
// clang 14, which builds the fuzzers, lacks std::source_location with the library of g++ 12.
class Loc {
 public:
  static constexpr Loc current(const char* file = __builtin_FILE(),
                               unsigned line = __builtin_LINE()) {
    return Loc(file, line);
  }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr Loc(const char* file, unsigned line) : file_(file), line_(line) {}
  const char* file_;
  unsigned line_;
};
#endif

// Prints "file:line: message" to stderr and aborts.
[[noreturn]] void CheckFailed(const Loc& where, std::string_view message);

namespace internal {
template <class... Args>
std::string CheckMessage(std::string_view condition, fmt::format_string<Args...> format,
                         Args&&... args) {
  return fmt::format("CHECK({}) failed: {}", condition,
                     fmt::format(format, std::forward<Args>(args)...));
}
inline std::string CheckMessage(std::string_view condition) {
  return fmt::format("CHECK({}) failed", condition);
}
}  // namespace internal

// CHECK(cond) or CHECK(cond, "format {}", args...); blames the line it stands on.
#define CHECK(cond, ...) CHECK_AT(::ulmus::Loc::current(), cond __VA_OPT__(, ) __VA_ARGS__)

// The same, blaming `where`: functions that take their caller's Loc pass it on.
#define CHECK_AT(where, cond, ...)                                                             \
  do {                                                                                         \
    if (!(cond)) [[unlikely]]                                                                  \
      ::ulmus::CheckFailed((where),                                                            \
                           ::ulmus::internal::CheckMessage(#cond __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

}  // namespace ulmus
