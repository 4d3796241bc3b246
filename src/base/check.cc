#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ulmus {

void CheckFailed(const Loc& where, std::string_view message) {
  fmt::print(stderr, "{}:{}: {}\n", where.file_name(), where.line(), message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace ulmus
