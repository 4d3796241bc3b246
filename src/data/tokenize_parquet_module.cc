// The module `ulmus_parquet.so`: the one file that touches Arrow, and the only one that catches.
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "data/tokenize_parquet.h"

namespace ulmus::data {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 10;
// A page is read whole, packed and again unpacked, whatever its header promises; it holds many
// documents. 2 GiB with the usual limit of a document.
constexpr int64_t kMemoryPerDocumentByte = 8;
constexpr int64_t kLeastMemoryBytes = int64_t{64} << 20;
constexpr int64_t kBatchRows = 256;

// Arrow throws; what it throws is about the file.
template <class Work>
auto Caught(const Path& path, Work&& work) -> decltype(work()) {
  std::string why;
  try {
    return work();
  } catch (const parquet::ParquetStatusException& error) {
    why = error.status().message();
    if (error.status().IsOutOfMemory())
      return ResourceExhaustedError(
          "{}: a page does not fit in memory: {}; --max-document-mb allows more", path, why);
    if (error.status().IsNotImplemented())
      return UnimplementedError("{}: {}; write it with another codec or encoding", path, why);
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("{}: a page does not fit in memory", path);
  } catch (const std::exception& error) {
    why = error.what();
  }
  // Some of its messages go on for lines.
  why = why.substr(0, std::min<size_t>(why.find('\n'), 300));
  return DataLossError("{}: damaged, or no Parquet file: {}; fetch or write it again", path, why);
}

bool IsText(const parquet::ColumnDescriptor& column) {
  return column.physical_type() == parquet::Type::BYTE_ARRAY &&
         column.max_repetition_level() == 0 &&
         (column.logical_type()->is_string() || column.logical_type()->is_JSON() ||
          column.logical_type()->is_enum());
}

std::string TypeName(const parquet::ColumnDescriptor& column) {
  if (column.max_repetition_level() > 0) return "list";
  if (IsText(column)) return "text";
  if (!column.logical_type()->is_none() && column.logical_type()->is_valid())
    return column.logical_type()->ToString();
  return column.physical_type() == parquet::Type::BYTE_ARRAY
             ? "binary"
             : parquet::TypeToString(column.physical_type());
}

// Columns are named by their path, `meta.text` for a field of a structure.
Result<int> FindColumn(const parquet::SchemaDescriptor& schema, const std::string& wanted) {
  std::vector<std::string> names;
  std::vector<std::string> described;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const parquet::ColumnDescriptor& column = *schema.Column(i);
    const std::string name = column.path()->ToDotString();
    if (name == wanted && IsText(column)) return i;
    if (name == wanted) described.insert(described.begin(), "");
    names.push_back(name);
    constexpr size_t kMaxNames = 64;
    if (described.size() < kMaxNames)
      described.push_back(fmt::format("{} ({})", name, TypeName(column)));
  }
  std::erase(described, "");
  const auto found = std::ranges::find(names, wanted);
  if (found != names.end()) {
    const auto index = static_cast<int>(found - names.begin());
    return InvalidArgumentError("column `{}` holds {}, not text; it has: {}", wanted,
                                TypeName(*schema.Column(index)), fmt::join(described, ", "));
  }
  const std::optional<std::string> near = NearestKey(wanted, names);
  return InvalidArgumentError("has no column `{}`{}; it has: {}", wanted,
                              near ? fmt::format("; did you mean `{}`?", *near) : "",
                              fmt::join(described, ", "));
}

class ParquetRows : public RecordReader {
 public:
  ParquetRows(Path path, const RecordOptions& options)
      : path_(std::move(path)),
        field_(options.field),
        max_bytes_(options.max_document_bytes),
        pool_(arrow::system_memory_pool(),
              std::max(kMemoryPerDocumentByte * max_bytes_, kLeastMemoryBytes)) {}

  // May throw.
  Status Open(const RecordPosition& from) {
    file_bytes_ = TRY(FileSizeBytes(path_));
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoError(errno, path_, "open");
    std::shared_ptr<arrow::io::ReadableFile> file;  // owns fd from now on
    PARQUET_ASSIGN_OR_THROW(file, arrow::io::ReadableFile::Open(fd, &pool_));
    parquet::ReaderProperties properties(&pool_);
    properties.enable_buffered_stream();  // not the whole column chunk at once
    properties.set_buffer_size(kReadBytes);
    properties.set_page_checksum_verification(true);
    file_ = parquet::ParquetFileReader::Open(std::move(file), properties);
    const parquet::FileMetaData& metadata = *file_->metadata();
    Result<int> column = FindColumn(*metadata.schema(), field_);
    if (!column.ok()) return column.status().WithContext(path_.string());
    column_ = *column;
    full_level_ = metadata.schema()->Column(column_)->max_definition_level();
    return SkipTo(from.records);
  }

  Result<bool> Next(Record& record) override {
    record = {};
    if (next_ == num_levels_ && !TRY(Caught(path_, [&] { return Refill(); }))) return false;
    ++rows_;
    record.kind = RecordKind::kText;
    record.number = rows_;
    if (levels_[next_++] < full_level_) {
      record.error = DataLossError("column `{}` holds null, not text", field_);
      return true;
    }
    const parquet::ByteArray& value = values_[next_value_++];
    if (value.len > max_bytes_) {
      record.error = DocumentTooLong(max_bytes_);
    } else {
      record.data.assign(reinterpret_cast<const char*>(value.ptr), value.len);
    }
    return true;
  }
  RecordPosition position() const override { return {.records = rows_, .bytes = 0}; }
  // By rows: where the column lies in the file says little.
  int64_t file_position() const override {
    const int64_t total = file_->metadata()->num_rows();
    return total <= 0 ? file_bytes_
                      : static_cast<int64_t>(static_cast<double>(file_bytes_) *
                                             static_cast<double>(std::min(rows_, total)) /
                                             static_cast<double>(total));
  }

 private:
  int64_t GroupRows(int group) const { return file_->metadata()->RowGroup(group)->num_rows(); }

  Status CheckGroup(int group) const {
    const int64_t rows = GroupRows(group);
    const int64_t values = file_->metadata()->RowGroup(group)->ColumnChunk(column_)->num_values();
    if (rows >= 0 && values == rows) return {};
    return DataLossError("{}: row group {} has {} rows, but {} values of column `{}`", path_, group,
                         rows, values, field_);
  }

  Status SkipTo(int64_t row) {
    for (group_ = 0; group_ < file_->metadata()->num_row_groups(); ++group_) {
      TRY(CheckGroup(group_));
      const int64_t rows = GroupRows(group_);
      if (row - rows_ < rows) break;
      rows_ += rows;
    }
    if (rows_ == row) return {};
    if (group_ == file_->metadata()->num_row_groups())
      return DataLossError("{}: {} rows, but work was left at row {}", path_, rows_, row);
    OpenGroup();
    const int64_t skipped = reader_->Skip(row - rows_);
    rows_left_ -= skipped;
    rows_ += skipped;
    if (rows_ == row) return {};
    return DataLossError("{}: row group {} ends after {} of its rows", path_, group_ - 1, skipped);
  }

  // Moves on to group_.
  void OpenGroup() {
    rows_left_ = GroupRows(group_);
    row_group_ = file_->RowGroup(group_++);
    reader_ = std::static_pointer_cast<parquet::ByteArrayReader>(row_group_->Column(column_));
  }

  // The next rows, as far as one page holds them. False at the end.
  Result<bool> Refill() {
    while (rows_left_ == 0) {
      if (group_ == file_->metadata()->num_row_groups()) return false;
      TRY(CheckGroup(group_));
      OpenGroup();
    }
    // Without nulls there are no levels to read.
    levels_.fill(full_level_);
    int64_t num_values = 0;
    num_levels_ = static_cast<size_t>(reader_->ReadBatch(
        std::min(kBatchRows, rows_left_), levels_.data(), nullptr, values_.data(), &num_values));
    next_ = next_value_ = 0;
    rows_left_ -= static_cast<int64_t>(num_levels_);
    const auto present = std::ranges::count(std::span(levels_).first(num_levels_), full_level_);
    if (num_levels_ == 0 || present != num_values) {
      return DataLossError("{}: row group {} ends {} rows too early", path_, group_ - 1,
                           rows_left_);
    }
    return true;
  }

  const Path path_;
  const std::string field_;
  const int64_t max_bytes_;
  arrow::CappedMemoryPool pool_;  // outlives all that follow
  std::unique_ptr<parquet::ParquetFileReader> file_;
  int64_t file_bytes_ = 0;
  int column_ = 0;
  int16_t full_level_ = 0;  // of a value that is there
  int group_ = 0;           // to be read next
  std::shared_ptr<parquet::RowGroupReader> row_group_;
  std::shared_ptr<parquet::ByteArrayReader> reader_;
  int64_t rows_left_ = 0;  // of the row group, not read yet
  int64_t rows_ = 0;       // given out, or skipped
  // Read, not given out yet. The bytes of values_ belong to the page until the next ReadBatch.
  std::array<int16_t, kBatchRows> levels_{};
  std::array<parquet::ByteArray, kBatchRows> values_{};
  size_t num_levels_ = 0;
  size_t next_ = 0;
  size_t next_value_ = 0;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void UlmusOpenParquet(
    const Path& path, const RecordOptions& options, const RecordPosition& from,
    Result<std::unique_ptr<RecordReader>>& out) noexcept {
  auto reader = std::make_unique<ParquetRows>(path, options);
  if (const Status status = Caught(path, [&] { return reader->Open(from); }); !status.ok()) {
    out = status;
  } else {
    out = std::move(reader);
  }
}

}  // namespace ulmus::data
