// Any bytes as the start of a token file: refused, or a header that fits what it claims.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "data/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::data;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = ParseNpyHeader(bytes);
  if (!header.ok()) return 0;
  CHECK(IsNpy(bytes));
  CHECK(header->num_elements >= 0);
  CHECK(header->data_offset > 0 && header->data_offset <= static_cast<int64_t>(size));
  const std::string again = NpyHeaderText(header->dtype, header->num_elements);
  const auto parsed = ParseNpyHeader(std::as_bytes(std::span(again)));
  CHECK(parsed.ok() && parsed->num_elements == header->num_elements);
  CHECK(parsed->dtype == header->dtype);
  return 0;
}
