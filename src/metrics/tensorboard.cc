#include "metrics/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/hash.h"
#include "metrics/derived/table.h"
#include "metrics/step_fields.h"
#include "tensorboard_subset.pb.h"

namespace ulmus::metrics {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kFileVersion = "brain.Event:2";

// A record: payload length u64, masked CRC-32C of those 8 bytes, payload, masked CRC-32C of it.
constexpr int64_t kHeaderBytes = 12;
constexpr int64_t kFooterBytes = 4;

void AppendRecord(std::string& out, const tensorboard::Event& event) {
  const std::string payload = event.SerializeAsString();
  const auto append = [&](const auto& number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const uint64_t size_bytes = payload.size();
  append(size_bytes);
  append(MaskCrc32c(Crc32c(std::as_bytes(std::span(&size_bytes, 1)))));
  out += payload;
  append(MaskCrc32c(Crc32c(payload)));
}

template <class T>
T LittleEndian(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Records of an event file in bounded memory.
class RecordReader {
 public:
  static Result<RecordReader> Open(const Path& path) {
    FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoError(errno, path, "open");
    const int64_t file_bytes = TRY(FileSizeBytes(path));
    return RecordReader(path, std::move(fd), file_bytes);
  }

  // False at the end of the file and at a torn record.
  Result<bool> Next() {
    begin_ = end_;
    if (file_bytes_ - begin_ < kHeaderBytes) return false;
    TRY(Read(begin_, kHeaderBytes));
    const auto size = LittleEndian<uint64_t>(bytes_, 0);
    if (MaskCrc32c(Crc32c(std::string_view(bytes_).substr(0, 8))) !=
        LittleEndian<uint32_t>(bytes_, 8))
      return Damaged("checksum of the length differs");
    if (size > static_cast<uint64_t>(kMaxEventBytes))
      return Damaged(fmt::format("length {} is above {}", size, kMaxEventBytes));
    const auto payload_bytes = static_cast<int64_t>(size);
    if (file_bytes_ - begin_ - kHeaderBytes < payload_bytes + kFooterBytes) return false;
    TRY(Read(begin_ + kHeaderBytes, payload_bytes + kFooterBytes));
    const auto crc = LittleEndian<uint32_t>(bytes_, static_cast<size_t>(payload_bytes));
    bytes_.resize(static_cast<size_t>(payload_bytes));
    if (MaskCrc32c(Crc32c(bytes_)) != crc) return Damaged("checksum of the event differs");
    end_ = begin_ + kHeaderBytes + payload_bytes + kFooterBytes;
    event_.Clear();
    if (!event_.ParseFromString(bytes_)) return Damaged("no event");
    return true;
  }

  const tensorboard::Event& event() const { return event_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

 private:
  RecordReader(Path path, FileDescriptor fd, int64_t file_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), file_bytes_(file_bytes) {}

  Status Read(int64_t offset, int64_t size_bytes) {
    bytes_.resize(static_cast<size_t>(size_bytes));
    const int64_t count = TRY(ReadAt(
        fd_.get(), path_, offset, std::as_writable_bytes(std::span(bytes_.data(), bytes_.size()))));
    return count == size_bytes ? Status() : Damaged("the file became shorter while it was read");
  }
  Status Damaged(std::string_view what) const {
    return DataLossError("{}: record at byte {}: {}", path_, begin_, what);
  }

  Path path_;
  FileDescriptor fd_;
  int64_t file_bytes_;
  std::string bytes_;
  tensorboard::Event event_;
  int64_t begin_ = 0, end_ = 0;
};

Event FromProto(const tensorboard::Event& proto) {
  Event event{
      .wall_time_s = proto.wall_time(), .step = proto.step(), .file_version = {}, .values = {}};
  event.file_version = proto.file_version();
  event.session_start = proto.session_log().status() == tensorboard::SessionLog::START;
  for (const tensorboard::Summary::Value& value : proto.summary().value())
    event.values.push_back({value.tag(), double{value.simple_value()}});
  return event;
}

Status RepairFile(const Path& path, int64_t step) {
  RecordReader records = TRY(RecordReader::Open(path));
  ByteRanges stays;
  for (;;) {
    const Result<bool> next = records.Next();
    if (!next.ok()) {
      return Status(next.error().code(),
                    fmt::format("{}; remove the file: metrics.jsonl holds the same values",
                                next.error().message()));
    }
    if (!*next) break;
    const tensorboard::Event& event = records.event();
    if (!event.has_summary() || (event.step() <= step && step > 0))
      stays.Add(records.begin(), records.end());
  }
  return stays.CutFile(path);
}

// Later than all files of the folder by name, also within one second and if the clock went back.
Result<Path> NextEventFile(const Path& folder) {
  auto second = static_cast<int64_t>(WallTimeS());
  const std::vector<Path> files = TRY(ListEventFiles(folder));
  if (!files.empty()) {
    const std::string last = files.back().filename().string().substr(kPrefix.size());
    int64_t last_second = 0;
    std::from_chars(last.data(), last.data() + last.size(), last_second);
    second = std::max(second, last_second + 1);
  }
  return folder / fmt::format("{}{:010}.{}", kPrefix, second, getpid());
}

void AddValue(tensorboard::Summary& summary, std::string tag, double value) {
  tensorboard::Summary::Value& added = *summary.add_value();
  added.set_tag(std::move(tag));
  added.set_simple_value(static_cast<float>(value));
}

void AddField(tensorboard::Summary& summary, std::string_view tag, double value) {
  AddValue(summary, std::string(tag), value);
}
void AddField(tensorboard::Summary& summary, std::string_view tag, int64_t value) {
  AddValue(summary, std::string(tag), static_cast<double>(value));
}
template <class T>
void AddField(tensorboard::Summary& summary, std::string_view tag, const std::optional<T>& value) {
  if (value) AddField(summary, tag, *value);
}

void Fill(tensorboard::Event& event, const StepRecord& record) {
  event.set_wall_time(record.wall_time_s);
  tensorboard::Summary& summary = *event.mutable_summary();
  VisitStepFields(record, [&](std::string_view, std::string_view tag, const auto& value) {
    if (!tag.empty()) AddField(summary, tag, value);
  });
  for (const NamedValue& norm : record.norms) AddValue(summary, "norms/" + norm.name, norm.value);
  for (const DerivedMetric& metric : DerivedMetrics())
    AddField(summary, fmt::format("derived/{}", metric.name), metric.compute(record));
}

void Fill(tensorboard::Event& event, const EvalRecord& record) {
  event.set_wall_time(record.wall_time_s);
  AddValue(*event.mutable_summary(), "heldout/" + record.set, record.loss.mean());
}

void Fill(tensorboard::Event&, const EventRecord&) {}

}  // namespace

Status ReadEvents(const Path& path, const std::function<Status(const Event&)>& visit) {
  RecordReader records = TRY(RecordReader::Open(path));
  while (TRY(records.Next())) TRY(visit(FromProto(records.event())));
  return {};
}

Result<std::vector<Path>> ListEventFiles(const Path& folder) {
  std::vector<Path> files;
  for (const std::string& name : TRY(ListDirectory(folder)))
    if (name.starts_with(kPrefix)) files.push_back(folder / name);
  return files;
}

Status RepairEvents(const Path& folder, int64_t step) {
  for (const Path& path : TRY(ListEventFiles(folder))) TRY(RepairFile(path, step));
  return {};
}

Result<std::unique_ptr<Sink>> TensorBoardSink::Open(const Path& folder, int64_t step) {
  const Path path = TRY(NextEventFile(folder));
  AppendFile file = TRY(AppendFile::Open(path));
  std::string records;
  tensorboard::Event event;
  event.set_wall_time(WallTimeS());
  event.set_file_version(std::string(kFileVersion));
  AppendRecord(records, event);
  // From 0 on everything is written again, step 0 included.
  event.set_step(step == 0 ? 0 : step + 1);
  event.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  AppendRecord(records, event);
  TRY(file.Append(records));
  return std::unique_ptr<Sink>(new TensorBoardSink(std::move(file)));
}

Status TensorBoardSink::Write(const Record& record) {
  tensorboard::Event event;
  event.set_step(StepOf(record));
  std::visit([&](const auto& r) { Fill(event, r); }, record);
  if (!event.has_summary()) return {};
  std::string bytes;
  AppendRecord(bytes, event);
  return file_.Append(bytes);
}

}  // namespace ulmus::metrics
