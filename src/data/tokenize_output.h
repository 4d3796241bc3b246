// Token files in the making: documents are appended, and after a kill at any time the work goes on
// from the last saved state to the same bytes. Names are final only when everything is written;
// until then files end in ".partial". Layout: docs/formats/tokens_manifest.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/manifest.h"
#include "data/tokenize_records.h"

namespace ulmus::data {

struct OutputOptions {
  Path prefix;  // files are called prefix-00000.npy and so on
  Manifest
      described;  // dtype, vocab_size, eos_id, tokenizer, settings, inputs; the rest is counted
  int64_t max_shard_tokens = int64_t{1}
                             << 30;     // a file ends before the document that would exceed it
  std::vector<int64_t> input_times_ns;  // of change: an input that differs is not gone on with
};

// Where the reading of the inputs stands.
struct InputCursor {
  int64_t input = 0;
  RecordPosition position;
  friend bool operator==(const InputCursor&, const InputCursor&) = default;
};

// One thread, one process: a lock file keeps others out.
class TokenOutput {
 public:
  // Starts, or goes on from a saved state. kFailedPrecondition: what is there was made with other
  // settings or inputs, belongs to no manifest, or another process works on it. kDataLoss: a
  // partial file was cut, or a complete one is not what the manifest says.
  static Result<std::unique_ptr<TokenOutput>> Open(const OutputOptions& options);
  ~TokenOutput();

  // True if there is nothing left to do: the manifest stands, made with the same settings from the
  // same inputs, and its files are what it says.
  bool complete() const { return complete_; }
  bool resumed() const { return resumed_; }
  const InputCursor& cursor() const { return state_.cursor; }
  const Manifest& manifest() const { return state_.manifest; }  // counts so far

  int64_t num_documents() const { return state_.manifest.documents + state_.shard_documents; }

  // Appends whole documents, each with its EOS: `lengths` cut `ids`. kInternal if an id does not
  // fit. After an error nothing is saved any more: what was saved before stays good.
  Status Append(std::span<const int32_t> ids, std::span<const int64_t> lengths);
  // Counts that belong to the text up to `cursor`, and the place itself; not durable before Save.
  void Advance(const InputCursor& cursor, int64_t empty_documents, int64_t bad_records);
  // Makes everything up to the cursor durable.
  Status Save();
  // Ends the last file, gives all files their names, and writes the manifest.
  Status Finish();

  // Removes whatever an earlier run left under the prefix, complete or not.
  static Status Discard(const Path& prefix);

 private:
  struct State {
    Manifest manifest;  // its files: those that are ended
    InputCursor cursor;
    int64_t shard_tokens = 0;  // of the file in the making
    int64_t shard_documents = 0;
    int64_t sidecar_bytes = 0;
    bool written = false;  // all files are ended; only names and the manifest are missing
  };

  TokenOutput(const OutputOptions& options, FileLock lock);
  Status Load(const std::string& json);
  Status Resume();
  Status TakeComplete();
  Status ExpectNoStrangers() const;
  std::string PrintState() const;
  Path ShardPath(size_t index, std::string_view suffix) const;
  Status AppendDocuments(std::span<const int32_t> ids, std::span<const int64_t> lengths);
  Status SaveState();
  Status OpenShard();
  Status Flush();
  Status EndShard();
  Result<ManifestPart> PackSidecar(size_t index);
  Status Publish();
  Status RemoveTraces();
  Status CheckSettings(const Manifest& found, std::string_view where) const;

  OutputOptions options_;
  FileLock lock_;
  State state_;
  bool complete_ = false;
  bool resumed_ = false;
  bool failed_ = false;     // a batch may be there in part, or a buffer twice
  FileDescriptor tokens_;   // of the file in the making; closed between files
  FileDescriptor sidecar_;  // plain text until the file is ended
  Sha256 hash_;
  std::string token_buffer_;
  std::string sidecar_buffer_;
};

}  // namespace ulmus::data
