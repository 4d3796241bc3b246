// Which documents make up each instance of a packed or padded dataset, kept in a file, so that a
// start over many tokens does not look for all documents again. docs/formats/packing_file.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/token_files.h"

namespace ulmus::data {

// A document, or the piece of one that an instance holds. 16 bytes: a stage has tens of millions.
struct PackedPiece {
  int64_t first_token = 0;
  int32_t file = 0;
  int32_t num_tokens = 0;
  friend bool operator==(const PackedPiece&, const PackedPiece&) = default;
};

// In memory, or mapped from a file. Moves, does not copy: the spans point into it.
class PackedPlan {
 public:
  PackedPlan() = default;
  PackedPlan(std::vector<PackedPiece> pieces, std::vector<int64_t> ends);
  // kNotFound without such a file; kDataLoss if it is cut, changed, of another key, or does not fit
  // `files`. Reads all of it once.
  static Result<PackedPlan> Open(const Path& path, const std::string& key, const TokenFiles& files);

  std::span<const PackedPiece> pieces() const { return pieces_; }  // instance by instance
  std::span<const int64_t> ends() const { return ends_; }  // pieces up to and including instance i

 private:
  std::vector<PackedPiece> own_pieces_;
  std::vector<int64_t> own_ends_;
  MappedFile file_;
  std::span<const PackedPiece> pieces_;
  std::span<const int64_t> ends_;
};

// All that a plan depends on: `settings`, and name, size, sample hash and time of change of each
// file and sidecar. 64 hexadecimal digits.
Result<std::string> PackingKey(const std::string& settings, const TokenFiles& files);

std::string PackingFileName(const std::string& key);
Status WritePackedPlan(const Path& path, const std::string& key, const PackedPlan& plan);

}  // namespace ulmus::data
