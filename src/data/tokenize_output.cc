#include "data/tokenize_output.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "data/token_file_identity.h"
#include "data/tokenize_bytes.h"

namespace ulmus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStateFormat = "ulmus tokenize state";
constexpr int64_t kStateVersion = 1;
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kStateSuffix = ".state.json";

Path With(const Path& prefix, std::string_view suffix) {
  return prefix.string() + std::string(suffix);
}
Path StatePath(const Path& prefix) { return With(prefix, kStateSuffix); }
Path LockPath(const Path& prefix) { return With(prefix, ".lock"); }
Path ManifestPath(const Path& prefix) { return With(prefix, kManifestSuffix); }

Status WriteAll(int fd, std::string_view bytes, const Path& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, path, "write");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Status SyncFile(const FileDescriptor& fd, const Path& path) {
  if (fsync(fd.get()) != 0) return ErrnoError(errno, path, "sync");
  return {};
}

// Opens for writing and cuts what was written after the last saved state.
Result<FileDescriptor> OpenAt(const Path& path, int64_t size_bytes) {
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(errno, path, "open");
  const off_t size = lseek(fd.get(), 0, SEEK_END);
  if (size < size_bytes) {
    return DataLossError(
        "{}: {} bytes, but {} were saved; it was cut or replaced. Start over with --restart", path,
        static_cast<int64_t>(size), size_bytes);
  }
  if (ftruncate(fd.get(), size_bytes) != 0) return ErrnoError(errno, path, "truncate");
  if (lseek(fd.get(), size_bytes, SEEK_SET) < 0) return ErrnoError(errno, path, "seek");
  return fd;
}

Result<Sha256> HashOf(const Path& path) {
  Sha256 hash;
  std::unique_ptr<ByteSource> source = TRY(OpenByteSource(path));  // ".partial": not unpacked
  std::string block(kBufferBytes, '\0');
  while (const size_t count = TRY(source->Read(block))) {
    hash.Update(std::string_view(block).substr(0, count));
  }
  return hash;
}

enum class Kind {
  kOther,   // of no work under this prefix
  kTrace,   // of work under way: no use once the manifest stands
  kResult,  // a final name
};

// "-00000.csv.gz" and so on, the end included.
Kind KindOfShard(std::string_view suffix) {
  if (suffix.size() < 6 || suffix[0] != '-') return Kind::kOther;
  suffix.remove_prefix(1);
  const size_t digits = suffix.find_first_not_of("0123456789");
  if (digits == std::string_view::npos || digits < 5) return Kind::kOther;
  suffix.remove_prefix(digits);
  const bool partial = suffix.ends_with(kPartial);
  if (partial) suffix.remove_suffix(kPartial.size());
  if (suffix != ".npy" && suffix != ".csv" && suffix != ".csv.gz") return Kind::kOther;
  return partial ? Kind::kTrace : Kind::kResult;
}

// What a file beside the prefix is, by its name.
Kind KindOf(const Path& prefix, std::string_view name) {
  constexpr std::string_view kTemporary = ".tmp-";  // of AtomicFile: left by a kill
  const std::string stem = prefix.filename();
  if (!name.starts_with(stem)) return Kind::kOther;
  name.remove_prefix(stem.size());
  for (const std::string_view written : {kStateSuffix, kManifestSuffix}) {
    if (name.starts_with(written) && name.substr(written.size()).starts_with(kTemporary))
      return Kind::kTrace;
  }
  if (name == kStateSuffix) return Kind::kTrace;
  if (name == kManifestSuffix) return Kind::kResult;
  return KindOfShard(name);
}

Path FolderOf(const Path& prefix) {
  return prefix.parent_path().empty() ? Path(".") : prefix.parent_path();
}

// Which settings differ, as far as a manifest tells.
std::string OtherSettings(const Manifest& found, const Manifest& now) {
  if (found.tokenizer != now.tokenizer) return "another tokenizer";
  if (found.dtype != now.dtype)
    return fmt::format("dtype {}, now {}", Name(found.dtype), Name(now.dtype));
  if (found.eos_id != now.eos_id) return fmt::format("EOS {}, now {}", found.eos_id, now.eos_id);
  if (found.inputs.size() != now.inputs.size())
    return fmt::format("{} inputs, now {}", found.inputs.size(), now.inputs.size());
  for (size_t i = 0; i < now.inputs.size(); ++i) {
    const ManifestInput& before = found.inputs[i];
    const ManifestInput& input = now.inputs[i];
    if (before.path != input.path) return fmt::format("input {}, now {}", before.path, input.path);
    if (before.bytes != input.bytes)
      return fmt::format("{} of {} bytes, now {}", input.path, before.bytes, input.bytes);
  }
  return "other options";
}

// The first input of the same size that was edited, "" if there is none. Times do not matter; a
// hash that was not written is taken for equal.
std::string EditedInput(const Manifest& found, const Manifest& now) {
  for (size_t i = 0; i < std::min(found.inputs.size(), now.inputs.size()); ++i) {
    const std::optional<uint64_t> before = found.inputs[i].sample_hash;
    const std::optional<uint64_t> hash = now.inputs[i].sample_hash;
    if (before && hash && before != hash)
      return fmt::format("another content of {} (sample hash {}, now {})", now.inputs[i].path,
                         PrintSampleHash(*before), PrintSampleHash(*hash));
  }
  return "";
}

template <class Element>
void AppendIds(std::span<const int32_t> ids, std::string& out) {
  const size_t before = out.size();
  out.resize(before + ids.size() * sizeof(Element));
  char* to = out.data() + before;
  for (const int32_t id : ids) {
    const auto element = static_cast<Element>(id);
    std::memcpy(to, &element, sizeof(element));
    to += sizeof(element);
  }
}

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

void AppendIds(DType dtype, std::span<const int32_t> ids, std::string& out) {
  if (dtype == DType::kU8) return AppendIds<uint8_t>(ids, out);
  if (dtype == DType::kU16) return AppendIds<uint16_t>(ids, out);
  if (dtype == DType::kU32) return AppendIds<uint32_t>(ids, out);
  AppendIds<uint64_t>(ids, out);
}

// gzip without a time or name in its header: equal text gives equal bytes.
class GzipWriter {
 public:
  GzipWriter(int fd, Path path) : fd_(fd), path_(std::move(path)), out_(kBufferBytes, '\0') {
    constexpr int kGzip = 16 + MAX_WBITS;
    CHECK(deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) ==
              Z_OK,
          "zlib got no memory");
  }
  ~GzipWriter() { deflateEnd(&stream_); }
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  Status Write(std::string_view bytes, bool last) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      const std::string_view packed(out_.data(), out_.size() - stream_.avail_out);
      hash_.Update(packed);
      size_ += static_cast<int64_t>(packed.size());
      TRY(WriteAll(fd_, packed, path_));
    } while (stream_.avail_out == 0);
    return {};
  }
  int64_t size() const { return size_; }
  std::string sha256() const { return hash_.hex(); }

 private:
  int fd_;
  Path path_;
  z_stream stream_{};
  std::string out_;
  Sha256 hash_;
  int64_t size_ = 0;
};

}  // namespace

TokenOutput::TokenOutput(const OutputOptions& options, FileLock lock)
    : options_(options), lock_(std::move(lock)) {
  state_.manifest = options.described;
}

TokenOutput::~TokenOutput() = default;

Path TokenOutput::ShardPath(size_t index, std::string_view suffix) const {
  return With(options_.prefix, fmt::format("-{:05}{}", index, suffix));
}

Result<std::unique_ptr<TokenOutput>> TokenOutput::Open(const OutputOptions& options) {
  if (const Path folder = options.prefix.parent_path(); !folder.empty())
    TRY(CreateDirectories(folder));
  const Path name = options.prefix.filename();
  if (name.empty() || name == "." || name == "..")
    return InvalidArgumentError("output prefix `{}` ends in no name; give folder/name",
                                options.prefix);
  FileLock lock = TRY(FileLock::Acquire(LockPath(options.prefix)));
  std::unique_ptr<TokenOutput> output(new TokenOutput(options, std::move(lock)));
  TRY(output->Resume());
  return output;
}

Status TokenOutput::CheckSettings(const Manifest& found, std::string_view where) const {
  const Manifest& wanted = options_.described;
  const std::string difference =
      found.settings != wanted.settings ? OtherSettings(found, wanted) : EditedInput(found, wanted);
  if (difference.empty()) return {};
  return FailedPreconditionError(
      "{} was made with {}. Give the same again, another --out, or --restart to delete what is "
      "there",
      where, difference);
}

Status TokenOutput::Resume() {
  const Path state_path = StatePath(options_.prefix);
  if (TRY(PathExists(ManifestPath(options_.prefix)))) {
    const Status complete = TakeComplete();
    if (!complete.ok()) TRY(RemoveFile(LockPath(options_.prefix)));  // nothing is under way
    return complete;
  }
  if (!TRY(PathExists(state_path))) return ExpectNoStrangers();
  const std::string json = TRY(ReadFile(state_path));
  if (const Status loaded = Load(json); !loaded.ok())
    return loaded.WithContext(state_path.string());
  resumed_ = true;
  return {};
}

Status TokenOutput::TakeComplete() {
  const Path path = ManifestPath(options_.prefix);
  const Result<Manifest> read = ReadManifest(path);
  if (!read.ok()) {
    return Status(read.status().code(),
                  read.status().message() + ". Restore it, or --restart to make all again");
  }
  const Manifest& found = *read;
  TRY(CheckSettings(found, path.string()));
  TRY(CheckAgainstManifest(path, ManifestCheck::kSamples));
  state_.manifest = found;
  complete_ = true;
  return RemoveTraces();
}

// Final names without a manifest or a saved state are not ours: they would be replaced.
Status TokenOutput::ExpectNoStrangers() const {
  const Path folder = FolderOf(options_.prefix);
  for (const std::string& name : TRY(ListDirectory(folder))) {
    if (KindOf(options_.prefix, name) != Kind::kResult) continue;
    TRY(RemoveFile(LockPath(options_.prefix)));
    return FailedPreconditionError(
        "{}: stands there already, but no {} describes it. Give another --out, or --restart to "
        "delete what is there",
        folder / name, ManifestPath(options_.prefix).filename());
  }
  return {};
}

std::string TokenOutput::PrintState() const {
  const Json json = {{"format", kStateFormat},
                     {"version", kStateVersion},
                     {"manifest", Json::parse(PrintManifest(state_.manifest))},
                     {"input_times_ns", options_.input_times_ns},
                     {"input", state_.cursor.input},
                     {"records", state_.cursor.position.records},
                     {"bytes", state_.cursor.position.bytes},
                     {"shard_tokens", state_.shard_tokens},
                     {"shard_documents", state_.shard_documents},
                     {"sidecar_bytes", state_.sidecar_bytes},
                     {"written", state_.written}};
  return json.dump(2) + "\n";
}

Status TokenOutput::Load(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto damaged = [] {
    return DataLossError("is no state of `tokenize`; start over with --restart");
  };
  for (const char* key : {"format", "manifest", "input_times_ns", "written"}) {
    if (!json.is_object() || !json.contains(key)) return damaged();
  }
  if (json["format"] != kStateFormat || !json["written"].is_boolean()) return damaged();
  std::vector<int64_t> counts;
  for (const char* key : {"version", "input", "records", "bytes", "shard_tokens", "shard_documents",
                          "sidecar_bytes"}) {
    if (!json.contains(key) || !json[key].is_number_integer() || json[key].get<int64_t>() < 0)
      return damaged();
    counts.push_back(json[key].get<int64_t>());
  }
  if (counts[0] != kStateVersion) return damaged();
  state_.manifest = TRY(ParseManifest(json["manifest"].dump(), "manifest"));
  TRY(CheckSettings(state_.manifest, "the unfinished work"));
  // Sample hashes are blind between their blocks; who has only begun can afford to be strict.
  const auto times = json["input_times_ns"];
  for (size_t i = 0; i < options_.input_times_ns.size(); ++i) {
    if (times.is_array() && i < times.size() && times[i] == options_.input_times_ns[i]) continue;
    return FailedPreconditionError(
        "{} was changed since the work was left; start over with --restart",
        options_.described.inputs[i].path);
  }
  state_.cursor = {.input = counts[1], .position = {.records = counts[2], .bytes = counts[3]}};
  state_.shard_tokens = counts[4];
  state_.shard_documents = counts[5];
  state_.sidecar_bytes = counts[6];
  state_.written = json["written"].get<bool>();
  if (state_.shard_documents > 0) TRY(OpenShard());
  return {};
}

Status TokenOutput::OpenShard() {
  const size_t index = state_.manifest.files.size();
  const Path tokens = ShardPath(index, ".npy.partial");
  const Path sidecar = ShardPath(index, ".csv.partial");
  tokens_ = TRY(OpenAt(tokens, state_.shard_tokens * SizeBytes(state_.manifest.dtype)));
  sidecar_ = TRY(OpenAt(sidecar, state_.sidecar_bytes));
  hash_ = TRY(HashOf(tokens));
  return {};
}

Status TokenOutput::Append(std::span<const int32_t> ids, std::span<const int64_t> lengths) {
  Status status = AppendDocuments(ids, lengths);
  failed_ = failed_ || !status.ok();
  return status;
}

Status TokenOutput::AppendDocuments(std::span<const int32_t> ids,
                                    std::span<const int64_t> lengths) {
  const int64_t limit = options_.described.vocab_size;
  for (const int64_t length : lengths) {
    const std::span<const int32_t> document = ids.first(static_cast<size_t>(length));
    ids = ids.subspan(static_cast<size_t>(length));
    for (const int32_t id : document) {
      if (id < 0 || id >= limit)
        return InternalError(
            "id {} does not fit the vocabulary of {}; nothing of its document was "
            "written",
            id, limit);
    }
    if (state_.shard_documents > 0 && state_.shard_tokens + length > options_.max_shard_tokens)
      TRY(EndShard());
    if (!tokens_.valid()) TRY(OpenShard());
    AppendIds(state_.manifest.dtype, document, token_buffer_);
    fmt::format_to(std::back_inserter(sidecar_buffer_), "{},{}\n", state_.shard_tokens,
                   state_.shard_tokens + length);
    state_.shard_tokens += length;
    ++state_.shard_documents;
    if (token_buffer_.size() >= kBufferBytes) TRY(Flush());
  }
  return {};
}

Status TokenOutput::Flush() {
  const size_t index = state_.manifest.files.size();
  hash_.Update(token_buffer_);
  TRY(WriteAll(tokens_.get(), token_buffer_, ShardPath(index, ".npy.partial")));
  token_buffer_.clear();
  TRY(WriteAll(sidecar_.get(), sidecar_buffer_, ShardPath(index, ".csv.partial")));
  state_.sidecar_bytes += static_cast<int64_t>(sidecar_buffer_.size());
  sidecar_buffer_.clear();
  return {};
}

void TokenOutput::Advance(const InputCursor& cursor, int64_t empty_documents, int64_t bad_records) {
  state_.cursor = cursor;
  state_.manifest.empty_documents += empty_documents;
  state_.manifest.bad_records += bad_records;
}

Status TokenOutput::Save() {
  if (failed_)
    return FailedPreconditionError("{}: not saved after a failed write", options_.prefix);
  Status status = SaveState();
  failed_ = !status.ok();
  return status;
}

Status TokenOutput::SaveState() {
  if (tokens_.valid()) {
    const size_t index = state_.manifest.files.size();
    TRY(Flush());
    TRY(SyncFile(tokens_, ShardPath(index, ".npy.partial")));
    TRY(SyncFile(sidecar_, ShardPath(index, ".csv.partial")));
  }
  return WriteFileAtomic(StatePath(options_.prefix), PrintState());
}

// The packed sidecar of a file that is ended.
Result<ManifestPart> TokenOutput::PackSidecar(size_t index) {
  const Path path = ShardPath(index, ".csv.gz.partial");
  FileDescriptor fd = TRY(OpenAt(path, 0));
  std::unique_ptr<ByteSource> source = TRY(OpenByteSource(ShardPath(index, ".csv.partial")));
  GzipWriter writer(fd.get(), path);
  std::string block(kBufferBytes, '\0');
  while (const size_t count = TRY(source->Read(block))) {
    TRY(writer.Write(std::string_view(block).substr(0, count), /*last=*/false));
  }
  TRY(writer.Write("", /*last=*/true));
  TRY(SyncFile(fd, path));
  const FileIdentity identity = TRY(IdentifyFile(path));
  return ManifestPart{.name = ShardPath(index, ".csv.gz").filename(),
                      .bytes = writer.size(),
                      .sha256 = writer.sha256(),
                      .sample_hash = identity.sample_hash};
}

Status TokenOutput::EndShard() {
  const size_t index = state_.manifest.files.size();
  TRY(Flush());
  const Path tokens = ShardPath(index, ".npy.partial");
  TRY(SyncFile(tokens_, tokens));
  const FileIdentity identity = TRY(IdentifyFile(tokens));
  ManifestPart sidecar = TRY(PackSidecar(index));
  state_.manifest.files.push_back(
      {.part = {.name = ShardPath(index, ".npy").filename(),
                .bytes = state_.shard_tokens * SizeBytes(state_.manifest.dtype),
                .sha256 = hash_.hex(),
                .sample_hash = identity.sample_hash},
       .tokens = state_.shard_tokens,
       .documents = state_.shard_documents,
       .sidecar = std::move(sidecar)});
  state_.manifest.tokens += state_.shard_tokens;
  state_.manifest.documents += state_.shard_documents;
  state_.shard_tokens = state_.shard_documents = state_.sidecar_bytes = 0;
  tokens_.Close();
  sidecar_.Close();
  return {};
}

Status TokenOutput::Finish() {
  if (!state_.written) {
    if (tokens_.valid()) TRY(EndShard());
    state_.written = true;
    TRY(Save());
  }
  return Publish();
}

// Repeatable from any point: names that are final already are left alone.
Status TokenOutput::Publish() {
  const Path folder = options_.prefix.parent_path();
  for (const ManifestFile& file : state_.manifest.files) {
    for (const ManifestPart* part : {&file.part, &*file.sidecar}) {
      const Path final_path = folder / part->name;
      const Path partial = With(final_path, kPartial);
      if (TRY(PathExists(partial))) TRY(Rename(partial, final_path));
      if (!TRY(PathExists(final_path)))
        return DataLossError("{}: missing; start over with --restart", final_path);
      if (const int64_t size = TRY(FileSizeBytes(final_path)); size != part->bytes)
        return DataLossError("{}: {} bytes, expected {}; start over with --restart", final_path,
                             size, part->bytes);
    }
  }
  TRY(WriteManifest(ManifestPath(options_.prefix), state_.manifest));
  complete_ = true;
  return RemoveTraces();
}

// What is of no use once the manifest stands.
Status TokenOutput::RemoveTraces() {
  const Path folder = FolderOf(options_.prefix);
  for (const std::string& name : TRY(ListDirectory(folder))) {
    if (KindOf(options_.prefix, name) == Kind::kTrace) TRY(RemoveFile(folder / name));
  }
  return RemoveFile(LockPath(options_.prefix));
}

Status TokenOutput::Discard(const Path& prefix) {
  const Path folder = FolderOf(prefix);
  if (!TRY(PathExists(folder))) return {};
  const FileLock lock = TRY(FileLock::Acquire(LockPath(prefix)));
  // The manifest first: without it the files count for nothing.
  for (const Path& path : {ManifestPath(prefix), StatePath(prefix)}) {
    if (TRY(PathExists(path))) TRY(RemoveFile(path));
  }
  for (const std::string& name : TRY(ListDirectory(folder))) {
    if (KindOf(prefix, name) != Kind::kOther) TRY(RemoveFile(folder / name));
  }
  return {};
}

}  // namespace ulmus::data
