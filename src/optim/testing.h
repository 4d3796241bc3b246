// The golden file of this module.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace ulmus::optim {

// AdamW steps, skip decisions and schedule values computed with OLMo-core 3.0.0 and MaxText's
// formulas.
inline nlohmann::json Golden() {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  EXPECT_NE(root, nullptr) << "set ULMUS_SOURCE_DIR to the source tree";
  const auto text = ReadFile(Path(root == nullptr ? "" : root) / "src/optim/testdata/optim.json");
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
}

}  // namespace ulmus::optim
