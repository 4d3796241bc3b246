#include "data/tokenize.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/parallel.h"
#include "data/token_file_identity.h"
#include "data/tokenize_output.h"
#include "tokenizer/utf8.h"

namespace ulmus::data {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What an encoder makes of a batch.
struct Encoded {
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;  // of the documents in `ids`, EOS included
  int64_t empty_documents = 0;
  int64_t bad_records = 0;
  std::vector<std::string> skipped;  // why, of the first few bad records
  Status error;  // of the first record that could not be read; those before it are in `ids`
};

constexpr size_t kMaxSkippedLines = 20;  // in the log, of any number of bad records

// Some records that follow each other in one input.
struct Batch {
  Path path;
  std::vector<Record> records;
  InputCursor after;         // where reading goes on behind them
  int64_t bytes_before = 0;  // of the files read before, for progress
  int64_t file_position = 0;
  Status error;  // of the reader, behind the records
  std::promise<Encoded> encoded;
};
using BatchPtr = std::shared_ptr<Batch>;

// --- Reader

struct InputFile {
  Path path;
  int64_t bytes = 0;
  int64_t changed_ns = 0;
  std::optional<uint64_t> sample_hash = std::nullopt;  // none of a pipe
};

Result<std::vector<InputFile>> LookAtInputs(const std::vector<Path>& paths) {
  std::vector<InputFile> inputs;
  for (const Path& path : paths) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, path, "open");
    if (S_ISDIR(info.st_mode))
      return InvalidArgumentError("{}: a folder; name its files, for example {}/*.jsonl.gz", path,
                                  path);
    inputs.push_back(
        {.path = path,
         .bytes = info.st_size,
         .changed_ns = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec});
  }
  const auto identify = [&inputs](int64_t i) -> Status {
    InputFile& input = inputs[static_cast<size_t>(i)];
    if (!std::filesystem::is_regular_file(input.path)) return Status();
    input.sample_hash = TRY(IdentifyFile(input.path)).sample_hash;
    return Status();
  };
  TRY(ForAll(static_cast<int64_t>(inputs.size()), {.name = "look at inputs", .unit = "files"},
             identify));
  return inputs;
}

class Reader {
 public:
  Reader(const TokenizeOptions& options, const std::vector<InputFile>& inputs,
         BoundedQueue<BatchPtr>& work, BoundedQueue<BatchPtr>& order)
      : options_(options), inputs_(inputs), work_(work), order_(order) {}

  // Until the inputs end, one fails, or the queues are closed.
  void Run(InputCursor from) {
    int64_t bytes_before = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (static_cast<int64_t>(i) >= from.input) {
        const bool resumes = static_cast<int64_t>(i) == from.input;
        if (!ReadInput(i, resumes ? from.position : RecordPosition(), bytes_before)) break;
      }
      bytes_before += inputs_[i].bytes;
    }
    work_.Close();
    order_.Close();
  }

 private:
  bool ReadInput(size_t index, const RecordPosition& from, int64_t bytes_before) {
    auto reader = OpenRecords(inputs_[index].path, options_.records, from);
    bool more = reader.ok();
    Status error = reader.status();
    do {
      auto batch = std::make_shared<Batch>();
      batch->path = inputs_[index].path;
      batch->bytes_before = bytes_before;
      batch->error = error;
      if (more) more = Fill(**reader, *batch);
      error = batch->error;
      // The last batch of an input moves on to the next.
      const auto input = static_cast<int64_t>(index);
      batch->after = more ? InputCursor{.input = input, .position = (*reader)->position()}
                          : InputCursor{.input = input + 1, .position = {}};
      batch->file_position = more ? (*reader)->file_position() : inputs_[index].bytes;
      if (!order_.Push(batch) || !work_.Push(batch)) return false;
    } while (more);
    return error.ok();
  }

  // False at the end of the input, or on an error.
  bool Fill(RecordReader& reader, Batch& batch) {
    int64_t bytes = 0;
    while (bytes < options_.batch_bytes) {
      Record record;
      const Result<bool> any = reader.Next(record);
      if (!any.ok()) {
        batch.error = any.status();
        return false;
      }
      if (!*any) return false;
      constexpr int64_t kRecordOverheadBytes = 64;
      bytes += static_cast<int64_t>(record.data.size()) + kRecordOverheadBytes;
      batch.records.push_back(std::move(record));
    }
    return true;
  }

  const TokenizeOptions& options_;
  const std::vector<InputFile>& inputs_;
  BoundedQueue<BatchPtr>& work_;
  BoundedQueue<BatchPtr>& order_;
};

// --- Encoders

class Encoder {
 public:
  Encoder(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options, int32_t eos_id)
      : tokenizer_(tokenizer), options_(options), eos_id_(eos_id) {}

  Encoded Encode(const Batch& batch) const {
    Encoded out;
    for (const Record& record : batch.records) {
      const Status status = Add(record, out);
      if (status.ok()) continue;
      if (options_.skip_bad) {
        ++out.bad_records;
        if (out.skipped.size() < kMaxSkippedLines)
          out.skipped.push_back(Located(batch, record, status).message());
        continue;
      }
      out.error = Located(batch, record, status);
      break;
    }
    return out;
  }

 private:
  Status Add(const Record& record, Encoded& out) const {
    TRY(Status(record.error));
    if (record.kind == RecordKind::kBytes) return AddText(record.data, out);
    if (record.kind == RecordKind::kText) {
      const size_t valid = tokenizer::ValidUtf8Prefix(record.data);
      if (valid < record.data.size()) return DataLossError("byte {} is not UTF-8", valid);
      return AddText(record.data, out);
    }
    const std::string text = TRY(TextOfJson(record.data, options_.records.field));
    const int64_t limit = options_.records.max_document_bytes;
    if (static_cast<int64_t>(text.size()) > limit) return DocumentTooLong(limit);
    return AddText(text, out);
  }

  Status AddText(std::string_view text, Encoded& out) const {
    if (text.empty()) {
      ++out.empty_documents;
      return {};
    }
    const size_t before = out.ids.size();
    TRY(tokenizer_.Encode(text, out.ids));
    out.ids.push_back(eos_id_);
    out.lengths.push_back(static_cast<int64_t>(out.ids.size() - before));
    return {};
  }

  static Status Located(const Batch& batch, const Record& record, const Status& status) {
    return Status(status.code(),
                  fmt::format("{}:{}: {}", batch.path, record.number, status.message()));
  }

  const tokenizer::Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const int32_t eos_id_;
};

// --- Options

Result<int32_t> EosId(const tokenizer::Tokenizer& tokenizer, const std::string& eos) {
  if (!eos.empty()) {
    Result<int32_t> id = tokenizer.IdOf(eos);
    if (!id.ok()) return InvalidArgumentError("--eos: {}", id.status().message());
    // An ordinary token stands inside documents, too.
    if (!tokenizer.IsSpecial(*id))
      return InvalidArgumentError(
          "--eos: `{}` (id {}) is a token of ordinary text; give the text of a special token, such "
          "as <|endoftext|>",
          eos, *id);
    return id;
  }
  if (const auto id = tokenizer.eos_id()) return *id;
  return InvalidArgumentError(
      "the tokenizer has no special token <|endoftext|>; name the one that ends a document with "
      "--eos");
}

Status CheckOptions(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options) {
  if (options.inputs.empty()) return InvalidArgumentError("no input file");
  if (options.num_threads < 1 || options.max_shard_tokens < 1 || options.batch_bytes < 1 ||
      options.records.max_document_bytes < 1)
    return InvalidArgumentError("threads, shard size and document size must be at least 1");
  if (!std::isfinite(options.save_interval_s) || options.save_interval_s < 0)
    return InvalidArgumentError("save interval of {} s; give a number from 0 on",
                                options.save_interval_s);
  if (!IsUnsignedInt(options.dtype))
    return InvalidArgumentError("dtype {} cannot hold token ids; use u16 or u32",
                                Name(options.dtype));
  const int64_t bits = 8 * SizeBytes(options.dtype);
  if (bits < 32 && tokenizer.vocab_size() - 1 >= int64_t{1} << bits) {
    return InvalidArgumentError(
        "dtype {} holds ids up to {}, but the tokenizer's go up to {}; use u32",
        Name(options.dtype), (int64_t{1} << bits) - 1, tokenizer.vocab_size() - 1);
  }
  return {};
}

std::string SettingsHash(const Manifest& described, const TokenizeOptions& options) {
  std::string text = fmt::format(
      "tokenize 1\n{}\n{}\neos {}\nfield {:?}\nlines {}\nskip_bad {}\nshard {}\ndocument {}\n",
      described.tokenizer, Name(described.dtype), described.eos_id, options.records.field,
      options.records.lines, options.skip_bad, options.max_shard_tokens,
      options.records.max_document_bytes);
  for (const ManifestInput& input : described.inputs)
    text += fmt::format("{} {}:{}\n", input.bytes, input.path.size(), input.path);
  return Sha256Hex(text);
}

Result<OutputOptions> DescribeOutput(const tokenizer::Tokenizer& tokenizer,
                                     const TokenizeOptions& options,
                                     const std::vector<InputFile>& inputs) {
  OutputOptions output = {.prefix = options.prefix,
                          .described = {},
                          .max_shard_tokens = options.max_shard_tokens,
                          .input_times_ns = {}};
  output.described.dtype = options.dtype;
  output.described.vocab_size = tokenizer.vocab_size();
  output.described.eos_id = TRY(EosId(tokenizer, options.eos));
  output.described.tokenizer = tokenizer.fingerprint();
  for (const InputFile& input : inputs) {
    output.described.inputs.push_back(
        {.path = input.path.string(), .bytes = input.bytes, .sample_hash = input.sample_hash});
    output.input_times_ns.push_back(input.changed_ns);
  }
  output.described.settings = SettingsHash(output.described, options);
  return output;
}

// --- Writer

// Takes the batches in order until they end, `stop` is set, or one has an error.
class Writer {
 public:
  Writer(TokenOutput& output, const TokenizeOptions& options, int64_t total_bytes)
      : output_(output), options_(options), total_bytes_(total_bytes) {}

  Status Run(BoundedQueue<BatchPtr>& order, const std::function<bool()>& stop,
             const std::function<void(const TokenizeProgress&)>& progress) {
    Clock::time_point saved = Clock::now();
    while (!stop()) {
      std::optional<BatchPtr> batch = order.PopFor(std::chrono::milliseconds(100));
      if (!batch) {
        if (order.drained()) break;
        continue;
      }
      TRY(Take(**batch, (*batch)->encoded.get_future().get()));
      if (progress)
        progress({.input_bytes = (*batch)->bytes_before + (*batch)->file_position,
                  .total_bytes = total_bytes_,
                  .tokens = tokens_});
      if (SecondsSince(saved) >= options_.save_interval_s) {
        TRY(output_.Save());
        saved = Clock::now();
      }
    }
    return {};
  }

  int64_t tokens() const { return tokens_; }

 private:
  Status Take(const Batch& batch, const Encoded& encoded) {
    // On an error the place stays before this batch, so that a repaired input can be gone on with.
    TRY(Status(encoded.error));
    TRY(Status(batch.error));
    for (const std::string& why : encoded.skipped) {
      if (skipped_lines_ == kMaxSkippedLines) break;
      ++skipped_lines_;
      LogWarning("skipped: {}", why);
    }
    TRY(output_.Append(encoded.ids, encoded.lengths));
    output_.Advance(batch.after, encoded.empty_documents, encoded.bad_records);
    tokens_ += static_cast<int64_t>(encoded.ids.size());
    return {};
  }

  TokenOutput& output_;
  const TokenizeOptions& options_;
  const int64_t total_bytes_;
  int64_t tokens_ = 0;
  size_t skipped_lines_ = 0;
};

}  // namespace

Result<TokenizeReport> Tokenize(const tokenizer::Tokenizer& tokenizer,
                                const TokenizeOptions& options, const std::function<bool()>& stop,
                                const std::function<void(const TokenizeProgress&)>& progress) {
  const Clock::time_point start = Clock::now();
  TRY(CheckOptions(tokenizer, options));
  const std::vector<InputFile> inputs = TRY(LookAtInputs(options.inputs));
  const OutputOptions described = TRY(DescribeOutput(tokenizer, options, inputs));
  if (options.restart) TRY(TokenOutput::Discard(options.prefix));
  const std::unique_ptr<TokenOutput> output = TRY(TokenOutput::Open(described));
  TokenizeReport report = {.manifest = output->manifest(),
                           .complete = output->complete(),
                           .already_complete = output->complete(),
                           .resumed = output->resumed()};
  if (output->complete()) return report;

  int64_t total_bytes = 0;
  for (const InputFile& input : inputs) total_bytes += input.bytes;
  // Every batch in `order` is in `work`, in an encoder's hands, or done: twice the encoders are
  // enough to keep all of them busy.
  const int64_t in_flight = 2 * int64_t{options.num_threads} + 2;
  BoundedQueue<BatchPtr> work(in_flight);
  BoundedQueue<BatchPtr> order(in_flight);
  Writer writer(*output, options, total_bytes);
  Status status;
  std::atomic<bool> abandoned = false;  // batches that are left need no work
  {
    std::vector<std::jthread> threads;
    const InputCursor from = output->cursor();
    threads.push_back(
        StartThread("tok-read", [&, from] { Reader(options, inputs, work, order).Run(from); }));
    for (int i = 0; i < options.num_threads; ++i) {
      threads.push_back(StartThread(fmt::format("tok-{}", i), [&] {
        const Encoder encoder(tokenizer, options, described.described.eos_id);
        while (std::optional<BatchPtr> batch = work.Pop()) {
          if (!abandoned) (*batch)->encoded.set_value(encoder.Encode(**batch));
        }
      }));
    }
    status = writer.Run(order, stop, progress);
    abandoned = true;
    work.Close();
    order.Close();
  }
  const bool ended = status.ok() && !stop();
  if (ended && output->num_documents() == 0) {
    status =
        InvalidArgumentError("the inputs hold no document ({} empty, {} bad); nothing is written",
                             output->manifest().empty_documents, output->manifest().bad_records);
  } else if (ended) {
    status = output->Finish();
  } else {
    // What is whole is kept: the same command goes on from there.
    const Status saved = output->Save();
    if (status.ok()) status = saved;
  }
  TRY(Status(status));
  report.manifest = output->manifest();
  report.complete = output->complete();
  report.tokens_encoded = writer.tokens();
  report.seconds = SecondsSince(start);
  return report;
}

}  // namespace ulmus::data
