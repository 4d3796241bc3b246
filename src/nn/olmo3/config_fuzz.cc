// config.json from anywhere: any bytes give a configuration or an error, and what is read is
// written back to the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "nn/olmo3/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = nn::olmo3::ConfigFromHf(text);
  if (!config.ok()) return 0;
  const auto again = nn::olmo3::ConfigFromHf(nn::olmo3::ConfigToHf(*config));
  CHECK(again.ok(), "{}", again.status().ToString());
  CHECK(*again == *config, "read back differently");
  return 0;
}
