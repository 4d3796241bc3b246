// Our side of bench/tokenizer.py, which compares with other programs in one run:
//   tokenizer_bench TOKENIZER_JSON TEXT     then, for each line on standard input, encodes the text
//                                           and prints "<seconds> <tokens>"
//   tokenizer_bench TOKENIZER_JSON TEXT ids writes the ids of the text, little-endian, and ends
// NUL bytes in the text separate documents, which are encoded one by one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace ulmus;

std::vector<std::string_view> Documents(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    documents.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return documents;
}

Status Run(const std::vector<std::string>& args) {
  constexpr int64_t kMaxTextBytes = int64_t{1} << 31;
  const tokenizer::Tokenizer tokenizer = TRY(tokenizer::Tokenizer::Load(args[1]));
  const std::string text = TRY(ReadFile(args[2], kMaxTextBytes));
  const std::vector<std::string_view> documents = Documents(text);
  // Decoding must give each document back, or the times mean nothing.
  std::vector<int32_t> all;
  for (const std::string_view document : documents) {
    const std::vector<int32_t> ids = TRY(tokenizer.Encode(document));
    if (TRY(tokenizer.Decode(ids)) != document)
      return InternalError("{}: decoding failed", args[2]);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  if (args.size() > 3) {
    std::fwrite(all.data(), sizeof(int32_t), all.size(), stdout);
    return {};
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<int32_t> ids;
    const auto start = std::chrono::steady_clock::now();
    for (const std::string_view document : documents) TRY(tokenizer.Encode(document, ids));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (ids != all) return InternalError("{}: two rounds gave different ids", args[2]);
    fmt::print("{:.6f} {}\n", seconds.count(), ids.size());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv, argv + argc);
  if (args.size() < 3) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER_JSON TEXT [ids]\n");
    return ulmus::kExitUsage;
  }
  const ulmus::Status status = Run(args);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return ulmus::ExitCodeFor(status);
}
