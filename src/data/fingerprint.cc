#include "data/fingerprint.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"

namespace ulmus::data {

std::string PythonText(DType dtype) {
  CHECK(IsInt(dtype), "tokens of dtype {}", Name(dtype));
  return fmt::format("<class 'numpy.{}int{}'>", IsUnsignedInt(dtype) ? "u" : "",
                     8 * SizeBytes(dtype));
}

std::string PythonOrNone(int64_t value, int64_t none) {
  return value == none ? "None" : fmt::format("{}", value);
}

std::string OlmoCoreFingerprint(std::string_view class_name,
                                std::span<const std::pair<std::string, std::string>> fields,
                                std::span<const FileSize> files) {
  Sha256 hash;
  hash.Update(fmt::format("class={}", class_name));
  for (const auto& [name, value] : fields) hash.Update(fmt::format("{}={},", name, value));
  for (const FileSize& file : files)
    hash.Update(fmt::format("path={},size={},", file.path.filename(), file.size_bytes));
  return hash.hex();
}

}  // namespace ulmus::data
