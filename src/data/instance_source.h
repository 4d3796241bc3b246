// Numbered instances of one dataset: what an order permutes and a loader reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"    // Path
#include "base/status.h"  // Result, Status

namespace ulmus::data {

class TokenFiles;  // token_files.h

// Segment id of padding. Documents of an instance are 1, 2, 3, ... from left to right.
inline constexpr int32_t kPaddingSegment = 0;

// Where one instance of T tokens goes: spans of length T, or null where something is not wanted.
//   tokens      padding holds the dataset's pad token
//   loss_mask   1 if token i may be a target, before any shift; 0 on padding and masked tokens
//   segment_ids document of the token, kPaddingSegment on padding. A document ends with its EOS
//   positions   0, 1, 2, ... from the start of the document, or of the padding
// A dataset whose instances cut documents (fixed length) counts the cut ones from the cut.
struct InstanceRow {
  std::span<int32_t> tokens = {};
  std::span<uint8_t> loss_mask = {};
  std::span<int32_t> segment_ids = {};
  std::span<int32_t> positions = {};
};

// Tokens [first_token, first_token + num_tokens) of a file.
struct TokenRange {
  Path file;
  int64_t first_token = 0;
  int64_t num_tokens = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Where an instance comes from.
struct InstanceOrigin {
  std::string source;              // label of the mix list or index, may be empty
  int64_t pass = 0;                // 0 the first time a mixture reads the tokens, 1 the second, ...
  std::vector<TokenRange> ranges;  // in the order of the instance; padding follows the last
};

// A pure function of its files and options: instance i holds the same tokens in every process.
// Read and Describe may be called from any thread.
class InstanceSource {
 public:
  virtual ~InstanceSource() = default;

  virtual int64_t num_instances() const = 0;
  virtual int64_t sequence_length() const = 0;  // T

  // Fills the spans that are not null (CHECKs that they have length T and `instance` exists).
  // kDataLoss names the file if it was cut, replaced, or holds an id outside the vocabulary.
  virtual Status Read(int64_t instance, const InstanceRow& row) const = 0;
  virtual Result<InstanceOrigin> Describe(int64_t instance) const = 0;

  // The files that instances are read from; null if they come from elsewhere.
  virtual const TokenFiles* files() const { return nullptr; }

  // Identity of the dataset: two sources with equal fingerprints number the same instances alike.
  // In the form of the format it comes from (OLMo-core's v2.0, MaxText's "sha256:...").
  virtual const std::string& fingerprint() const = 0;
  virtual std::string_view fingerprint_version() const { return "v2.0"; }
  // OLMo-core's `dataset_type` of a loader state: "fsl", "padded_fsl", "packed_fsl".
  virtual std::string_view type() const = 0;

  // Longest sequence that the same data will ever be cut to (OLMo-core's
  // max_target_sequence_length); its T-token pieces stay together under a shuffle.
  virtual int64_t max_target_sequence_length() const { return sequence_length(); }
  int64_t instances_per_chunk() const { return max_target_sequence_length() / sequence_length(); }
};

// Where one document ends and the next begins: after an EOS; with a BOS, only where one follows.
struct DocumentRule {
  int64_t eos = 0;
  int64_t bos = -1;  // -1: the tokenizer has none (dolma2)
  bool IsBorder(int64_t token, int64_t next) const {
    return token == eos && (bos < 0 || next == bos);
  }
};

// For implementations: segment_ids and positions (those that are wanted) of `tokens`, of which the
// first `num_real` are not padding.
void FillDocuments(std::span<const int32_t> tokens, int64_t num_real, const DocumentRule& rule,
                   const InstanceRow& row);
// For implementations: CHECKs the lengths of the spans.
void CheckRow(const InstanceRow& row, int64_t sequence_length);

}  // namespace ulmus::data
