// Saved reference values of src/data/testdata, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"

namespace ulmus::data {

inline Path TestDataPath(const std::string& name) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  return Path(root != nullptr ? root : ".") / "src/data/testdata" / name;
}

inline nlohmann::json ReadTestJson(const std::string& name) {
  const Result<std::string> text = ReadFile(TestDataPath(name));
  EXPECT_TRUE(text.ok()) << text.status().message() << " (ctest sets ULMUS_SOURCE_DIR)";
  return nlohmann::json::parse(text.ok() ? *text : "null");
}

}  // namespace ulmus::data
