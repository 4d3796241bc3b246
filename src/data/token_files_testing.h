// Small token files for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "data/npy.h"
#include "data/token_files.h"

namespace ulmus::data {

// Writes the values headerless as integers of type Element.
template <class Element>
Path WriteTokens(const Path& path, const std::vector<int64_t>& tokens) {
  std::vector<Element> elements;
  for (int64_t token : tokens) elements.push_back(static_cast<Element>(token));
  const Status status = WriteFileAtomic(path, std::as_bytes(std::span(elements)));
  EXPECT_TRUE(status.ok()) << status.message();
  return path;
}

inline Path WriteNpy(const Path& path, DType dtype, int64_t num_elements, std::string_view data) {
  const Status status =
      WriteFileAtomic(path, NpyHeaderText(dtype, num_elements) + std::string(data));
  EXPECT_TRUE(status.ok()) << status.message();
  return path;
}

// first, first + 1, ...
inline std::vector<int64_t> Counting(int64_t first, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

inline std::shared_ptr<const TokenFiles> OpenOrDie(std::vector<TokenFileSpec> specs,
                                                   const TokenFilesOptions& options = {}) {
  Result<std::shared_ptr<const TokenFiles>> files = TokenFiles::Open(std::move(specs), options);
  CHECK(files.ok(), "{}", files.status().message());
  return *files;
}

}  // namespace ulmus::data
