// Documents to token files: the work behind `ulmus tokenize`. A reader, several encoders and a
// writer meet in bounded queues, so that memory does not depend on the size of the inputs, and the
// output depends neither on the number of threads nor on interruptions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/manifest.h"
#include "data/tokenize_records.h"
#include "tokenizer/tokenizer.h"

namespace ulmus::data {

struct TokenizeOptions {
  std::vector<Path> inputs;  // in the order of their documents
  Path prefix;
  DType dtype = DType::kU32;
  std::string eos;  // text of the token that ends each document; "": the tokenizer's own
  RecordOptions records;
  bool skip_bad = false;  // leave out records that cannot be read, and count them
  bool restart = false;   // delete what an earlier run left
  int64_t max_shard_tokens = int64_t{1} << 30;
  int num_threads = 1;                     // that encode
  double save_interval_s = 10;             // between durable states; 0: after every batch
  int64_t batch_bytes = int64_t{1} << 20;  // of text that one encoder takes at a time
};

struct TokenizeProgress {
  int64_t input_bytes = 0;  // of the files, packed as they are
  int64_t total_bytes = 0;
  int64_t tokens = 0;  // in this process
};

struct TokenizeReport {
  Manifest manifest;
  bool complete = false;          // false: stopped, and saved
  bool already_complete = false;  // nothing was done
  bool resumed = false;
  int64_t tokens_encoded = 0;  // in this process
  double seconds = 0;
};

// Runs until everything is written or `stop` gives true. `stop` and `progress` are called from the
// calling thread. kInvalidArgument: options that cannot hold (dtype too small for the vocabulary,
// no EOS); kDataLoss: a record or file that cannot be read, by file and line.
Result<TokenizeReport> Tokenize(
    const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options,
    const std::function<bool()>& stop,
    const std::function<void(const TokenizeProgress&)>& progress = nullptr);

}  // namespace ulmus::data
