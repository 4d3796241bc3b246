// Tokenizers and files for tests.
#pragma once

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace ulmus::tokenizer {

inline Path TestdataPath(const std::string& name) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  return Path(root == nullptr ? "." : root) / "src/tokenizer/testdata" / name;
}

inline Tokenizer LoadForTest(const std::string& name) {
  auto tokenizer = Tokenizer::Load(TestdataPath(name));
  CHECK(tokenizer.ok(), "{}", tokenizer.status().message());
  return std::move(*tokenizer);
}

// The tokenizer of OLMo 3, and the one of 4096 ids that a small reference run was made with. Loaded
// once per process.
inline const Tokenizer& Dolma2() {
  static const Tokenizer tokenizer = LoadForTest("dolma2_tokenizer.json");
  return tokenizer;
}
inline const Tokenizer& Reference() {
  static const Tokenizer tokenizer = LoadForTest("reference_tokenizer.json");
  return tokenizer;
}

}  // namespace ulmus::tokenizer
