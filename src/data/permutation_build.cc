#include "data/permutation_build.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "data/permutation.h"

namespace ulmus::data {
namespace {

constexpr size_t kBufferBytes = 512 << 10;

// A file without a name: its space is free again as soon as the process ends.
class ScratchFile {
 public:
  static Result<ScratchFile> Create(const Path& path) {
    FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid()) return ErrnoError(errno, path, "create");
    if (unlink(path.c_str()) != 0) return ErrnoError(errno, path, "remove");
    return ScratchFile(path, std::move(fd));
  }

  Status Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = pwrite(fd_.get(), bytes.data(), bytes.size(), size_bytes_);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoError(errno, path_, "write scratch of the permutation");
      size_bytes_ += count;
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }

  Status Read(int64_t offset, std::span<std::byte> bytes) const {
    const int64_t count =
        TRY(ReadAt(fd_.get(), path_, offset, bytes, "read scratch of the permutation"));
    if (count < static_cast<int64_t>(bytes.size()))
      return DataLossError("{}: scratch of the permutation ends at {}", path_, offset + count);
    return {};
  }

 private:
  ScratchFile(Path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Path path_;  // for messages
  FileDescriptor fd_;
  int64_t size_bytes_ = 0;
};

// Records appended to a scratch file, then read back from any record on.
template <class Record>
class Log {
 public:
  explicit Log(ScratchFile file) : file_(std::move(file)) {}

  Status Add(const Record& record) {
    if (buffer_.capacity() == 0) buffer_.reserve(kRecords);
    buffer_.push_back(record);
    ++size_;
    return buffer_.size() == kRecords ? Flush() : Status();
  }
  Status Flush() {
    TRY(file_.Append(std::as_bytes(std::span<const Record>(buffer_))));
    buffer_.clear();
    return {};
  }
  int64_t size() const { return size_; }

  // Reading, after Flush.
  void SeekTo(int64_t record) {
    next_ = record;
    buffer_.clear();
    read_ = 0;
  }
  // The next records, at least one while there are any; valid until the next call.
  Result<std::span<const Record>> NextPiece() {
    const int64_t count = std::min(static_cast<int64_t>(kRecords), size_ - next_);
    buffer_.resize(static_cast<size_t>(count));
    TRY(file_.Read(next_ * static_cast<int64_t>(sizeof(Record)),
                   std::as_writable_bytes(std::span<Record>(buffer_))));
    next_ += count;
    return std::span<const Record>(buffer_);
  }
  Result<Record> Next() {
    if (read_ == buffer_.size()) {
      CHECK(next_ < size_, "{} records", size_);
      TRY(NextPiece());
      read_ = 0;
    }
    return buffer_[read_++];
  }

 private:
  static constexpr size_t kRecords = kBufferBytes / sizeof(Record);
  ScratchFile file_;
  std::vector<Record> buffer_;
  int64_t size_ = 0;
  int64_t next_ = 0;
  size_t read_ = 0;
};

// Index: uint32_t or uint64_t, the width of an entry in the file.
template <class Index>
class Builder {
 public:
  Builder(const PermutationId& id, Path path, const PermutationBuildOptions& options)
      : id_(id),
        path_(std::move(path)),
        band_size_(std::clamp<int64_t>(options.memory_bytes / int64_t{sizeof(Index)}, 1,
                                       std::min(id.size, int64_t{1} << 32))),
        num_bands_((id.size + band_size_ - 1) / band_size_),
        rng_(id.seed),
        values_(static_cast<size_t>(band_size_)),
        progress_("shuffle", 2 * id.size, {.unit = "entries"}) {}

  Status Build() {
    TRY(CheckDisk());
    for (int64_t band = 0; band < num_bands_; ++band) {
      states_.push_back(State{Log<Message>(TRY(Scratch("in", band))),
                              Log<Index>(TRY(Scratch("out", band))),
                              Log<Index>(TRY(Scratch("own", band))),
                              rng_,
                              {}});
    }
    for (int64_t band = num_bands_ - 1; band >= 0; --band) TRY(PlayBand(band));
    PermutationFileWriter writer = TRY(PermutationFileWriter::Create(path_, id_));
    for (int64_t band = 0; band < num_bands_; ++band) {
      TRY(AssembleBand(band));
      TRY(writer.Write(std::as_bytes(std::span<const Index>(values_).first(SizeOf(band)))));
    }
    return writer.Commit();
  }

 private:
  struct Message {
    uint32_t position;  // within the band it is sent to
    Index value;
  };
  struct State {
    Log<Message> inbox;                 // from the bands above
    Log<Index> answers;                 // to them, in the order of the inbox
    Log<Index> own;                     // entries as far as they are known without answers
    Pcg64 rng;                          // as it was before the band's first draw
    std::vector<int64_t> first_answer;  // [lower band]: where the answers to this band begin
  };

  State& At(int64_t band) { return states_[static_cast<size_t>(band)]; }
  int64_t Begin(int64_t band) const { return band * band_size_; }
  size_t SizeOf(int64_t band) const {
    return static_cast<size_t>(std::min(band_size_, id_.size - Begin(band)));
  }

  Result<ScratchFile> Scratch(const char* kind, int64_t band) const {
    Path path = path_;
    path += fmt::format(".scratch-{}-{}-{}", getpid(), kind, band);
    return ScratchFile::Create(path);
  }

  Status CheckDisk() const {
    const int64_t file_bytes = id_.size * int64_t{sizeof(Index)};
    const int64_t needed =
        num_bands_ == 1 ? file_bytes : file_bytes + id_.size * int64_t{sizeof(Message)};
    const int64_t free_bytes = TRY(FreeDiskBytes(path_.parent_path()));
    if (free_bytes >= needed) return {};
    return ResourceExhaustedError(
        "{}: a permutation of {} needs {} bytes of disk while it is built, {} are free; make room, "
        "or name "
        "another directory with data.cache_dir",
        path_, id_.size, needed, free_bytes);
  }

  // Plays the inbox: each message puts its value in and takes the old one out.
  Status AnswerInbox(int64_t band) {
    State& state = At(band);
    TRY(state.inbox.Flush());
    state.inbox.SeekTo(0);
    for (int64_t done = 0; done < state.inbox.size();) {
      const std::span<const Message> messages = TRY(state.inbox.NextPiece());
      for (size_t k = 0; k < messages.size(); ++k) {
        if (k + kDrawsAhead < messages.size())
          __builtin_prefetch(&values_[messages[k + kDrawsAhead].position], 1);
        Index& value = values_[messages[k].position];
        TRY(state.answers.Add(value));
        value = messages[k].value;
      }
      done += static_cast<int64_t>(messages.size());
    }
    TRY(state.answers.Flush());
    state.inbox = Log<Message>(TRY(Scratch("in", band)));  // frees its space
    return {};
  }

  Status PlayBand(int64_t band) {
    State& state = At(band);
    const int64_t begin = Begin(band);
    const std::span<Index> values = std::span(values_).first(SizeOf(band));
    std::iota(values.begin(), values.end(), static_cast<Index>(begin));
    TRY(AnswerInbox(band));
    state.rng = rng_;
    for (int64_t lower = 0; lower < band; ++lower)
      state.first_answer.push_back(At(lower).inbox.size());
    TRY(ForEachDraw(band, rng_, [&](int64_t i, int64_t partner) -> Status {
      Index& value = values[static_cast<size_t>(i - begin)];
      if (partner >= begin) {
        std::swap(value, values[static_cast<size_t>(partner - begin)]);
        return {};
      }
      const int64_t lower = partner / band_size_;
      return At(lower).inbox.Add({static_cast<uint32_t>(partner - Begin(lower)), value});
    }));
    if (num_bands_ == 1) return {};
    for (const Index value : values) TRY(state.own.Add(value));
    return state.own.Flush();
  }

  Status AssembleBand(int64_t band) {
    if (num_bands_ == 1) return {};
    State& state = At(band);
    const int64_t begin = Begin(band);
    const std::span<Index> values = std::span(values_).first(SizeOf(band));
    state.own.SeekTo(0);
    for (size_t done = 0; done < values.size();) {
      const std::span<const Index> piece = TRY(state.own.NextPiece());
      std::copy(piece.begin(), piece.end(), values.begin() + static_cast<ptrdiff_t>(done));
      done += piece.size();
    }
    for (int64_t lower = 0; lower < band; ++lower)
      At(lower).answers.SeekTo(state.first_answer[static_cast<size_t>(lower)]);
    Pcg64 rng = state.rng;
    return ForEachDraw(band, rng, [&](int64_t i, int64_t partner) -> Status {
      if (partner < begin)
        values[static_cast<size_t>(i - begin)] = TRY(At(partner / band_size_).answers.Next());
      return {};
    });
  }

  // visit(i, partner) for the band's positions from the last down to its first (but not 0).
  template <class Visit>
  Status ForEachDraw(int64_t band, Pcg64& rng, Visit visit) {
    const int64_t begin = Begin(band);
    const int64_t last = begin + static_cast<int64_t>(SizeOf(band)) - 1;
    std::array<int64_t, kDrawsAhead> partners{};
    for (int64_t i = last; i >= std::max<int64_t>(begin, 1);) {
      const int64_t count = std::min(kDrawsAhead, i - std::max<int64_t>(begin, 1) + 1);
      for (int64_t k = 0; k < count; ++k) {
        const auto partner = static_cast<int64_t>(rng.Interval(static_cast<uint64_t>(i - k)));
        partners[static_cast<size_t>(k)] = partner;
        if (partner >= begin) __builtin_prefetch(&values_[static_cast<size_t>(partner - begin)], 1);
      }
      for (int64_t k = 0; k < count; ++k) TRY(visit(i - k, partners[static_cast<size_t>(k)]));
      i -= count;
      since_update_ += count;
      if (since_update_ >= 1 << 20) progress_.Add(std::exchange(since_update_, 0));
    }
    return {};
  }

  const PermutationId id_;
  const Path path_;
  const int64_t band_size_;
  const int64_t num_bands_;
  Pcg64 rng_;
  std::vector<Index> values_;  // the band being played
  std::vector<State> states_;
  Progress progress_;
  int64_t since_update_ = 0;
};

}  // namespace

Status BuildPermutation(const PermutationId& id, const Path& path,
                        const PermutationBuildOptions& options) {
  CHECK(id.size > 0, "permutation of {}", id.size);
  if (id.element_bytes() == 4) return Builder<uint32_t>(id, path, options).Build();
  return Builder<uint64_t>(id, path, options).Build();
}

}  // namespace ulmus::data
