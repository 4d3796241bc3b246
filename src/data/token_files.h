// The files of a dataset in order, with labels and label masks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/token_file.h"
#include "tensor/dtype.h"

namespace ulmus::data {

struct TokenFileSpec {
  Path path;
  std::string label = {};        // source, as mix lists and indexes name it
  Path label_mask = {};          // one byte per token, 0: never a target; empty: none
  int64_t expected_tokens = -1;  // what an index or manifest says; -1: unknown
};

struct TokenFilesOptions {
  DType dtype = DType::kU32;
  int64_t vocab_size = 0;  // 0: not checked
  // Pages of the maps are given back to the page cache whenever so much has been read since.
  int64_t resident_limit_bytes = int64_t{1} << 30;
  // Maps in all; files beyond are read with system calls.
  int64_t mapped_limit_bytes = int64_t{64} << 40;
};

// Reads from any thread. Only sizes and npy headers are looked at when opened.
class TokenFiles {
 public:
  // kNotFound lists all files that are missing; kDataLoss names the file that is cut, whose label
  // mask has another length, or that holds another number of tokens than expected.
  static Result<std::shared_ptr<const TokenFiles>> Open(std::vector<TokenFileSpec> specs,
                                                        const TokenFilesOptions& options = {});

  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  const TokenFile& file(int64_t i) const { return *files_[static_cast<size_t>(i)]; }
  const TokenFileSpec& spec(int64_t i) const { return specs_[static_cast<size_t>(i)]; }
  std::span<const TokenFileSpec> specs() const { return specs_; }
  int64_t num_tokens(int64_t i) const { return file(i).num_tokens(); }
  int64_t total_tokens() const;
  bool has_label_masks() const;
  const TokenFilesOptions& options() const { return options_; }

  Status Read(int64_t i, int64_t first, std::span<int32_t> tokens) const;
  // 1 for every token of a file without a label mask.
  Status ReadMask(int64_t i, int64_t first, std::span<uint8_t> mask) const;

 private:
  TokenFiles(std::vector<TokenFileSpec> specs, const TokenFilesOptions& options);
  Status OpenAll();
  void CountRead(int64_t size_bytes) const;

  std::vector<TokenFileSpec> specs_;
  TokenFilesOptions options_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<std::unique_ptr<TokenFile>> masks_;  // null where there is none
  mutable std::atomic<int64_t> read_bytes_ = 0;    // since pages were last given back
};

}  // namespace ulmus::data
