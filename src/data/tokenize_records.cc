#include "data/tokenize_records.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/edit_distance.h"
#include "data/tokenize_bytes.h"
#include "data/tokenize_parquet.h"

namespace ulmus::data {
namespace {

using Json = nlohmann::json;

class Lines : public RecordReader {
 public:
  Lines(LineReader reader, RecordKind kind, int64_t max_document_bytes, const RecordPosition& from)
      : reader_(std::move(reader)),
        kind_(kind),
        max_document_bytes_(max_document_bytes),
        start_(from),
        number_(from.records) {}

  Result<bool> Next(Record& record) override {
    record = {};
    bool too_long = false;
    do {
      if (!TRY(reader_.Next(record.data, too_long))) return false;
      ++number_;
      if (!record.data.empty() && record.data.back() == '\r') record.data.pop_back();
      // Blank lines between objects hold no record; the last line often is one.
    } while (kind_ == RecordKind::kJson && !too_long &&
             record.data.find_first_not_of(" \t") == std::string::npos);
    record.number = number_;
    record.kind = kind_;
    if (too_long) record.error = DocumentTooLong(max_document_bytes_);
    return true;
  }
  RecordPosition position() const override {
    return {.records = number_, .bytes = start_.bytes + reader_.offset()};
  }
  int64_t file_position() const override { return reader_.file_position(); }

 private:
  LineReader reader_;
  RecordKind kind_;
  int64_t max_document_bytes_;
  RecordPosition start_;
  int64_t number_;
};

// The whole file is one document.
class WholeText : public RecordReader {
 public:
  WholeText(std::unique_ptr<ByteSource> source, int64_t max_bytes, const RecordPosition& from)
      : source_(std::move(source)), max_bytes_(max_bytes), position_(from) {}

  Result<bool> Next(Record& record) override {
    if (position_.records > 0) return false;
    record = {};
    record.number = 1;
    std::vector<char> block(size_t{1} << 20);
    while (const size_t count = TRY(source_->Read(block))) {
      position_.bytes += static_cast<int64_t>(count);
      if (position_.bytes > max_bytes_) {
        record.data.clear();
        record.error = DocumentTooLong(max_bytes_);
        break;  // the rest is not needed to tell that
      }
      record.data.append(block.data(), count);
    }
    position_.records = 1;
    return true;
  }
  RecordPosition position() const override { return position_; }
  int64_t file_position() const override { return source_->file_position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  int64_t max_bytes_;
  RecordPosition position_;
};

// Takes one field of the outermost object and the names of the others, without building a tree.
class FieldReader : public nlohmann::json_sax<Json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}

  bool null() override { return Other("null"); }
  bool boolean(bool) override { return Other("a boolean"); }
  bool number_integer(number_integer_t) override { return Other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Other("a number"); }
  bool binary(binary_t&) override { return Other("bytes"); }
  bool string(string_t& value) override {
    if (depth_ == 1 && wanted_) {
      text = std::move(value);
      found = "text";
    }
    return depth_ > 0 || Other("a text");
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) Other("an object");
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (!Other("a list")) return false;
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == field_;
    if (wanted_ && ++times_ > 1) {
      error = fmt::format("has field `{}` twice; which is meant is not known", field_);
      return false;
    }
    constexpr size_t kMaxNames = 64;
    if (names.size() < kMaxNames) names.push_back(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& what) override {
    // The parser quotes what it read last, which may be all of a document.
    constexpr size_t kMaxQuoted = 240;
    constexpr int kOverflow = 406;
    if (what.id == kOverflow) {
      error = fmt::format("the number before byte {} is beyond what a double holds (1.8e308)",
                          position);
    } else {
      error = fmt::format("is no JSON object: at byte {}: {}", position,
                          std::string_view(what.what()).substr(0, kMaxQuoted));
    }
    return false;
  }

  std::string text;
  std::string found;  // what the field holds; "": there is none
  std::vector<std::string> names;
  std::string error;  // what is wrong with the object

 private:
  bool Other(std::string_view what) {
    if (depth_ == 0) error = fmt::format("is no JSON object: it holds {}", what);
    if (depth_ == 1 && wanted_) found = what;
    return depth_ > 0;
  }

  const std::string& field_;
  int depth_ = 0;
  int times_ = 0;        // that the field was met
  bool wanted_ = false;  // the value to come, at depth 1, is the field's
};

}  // namespace

Result<std::string> TextOfJson(std::string_view json, const std::string& field) {
  FieldReader reader(field);
  const bool complete = Json::sax_parse(json, &reader);
  if (!complete || !reader.error.empty()) return DataLossError("{}", reader.error);
  if (reader.found == "text") return std::move(reader.text);
  if (!reader.found.empty())
    return DataLossError("field `{}` holds {}, not text", field, reader.found);
  const std::optional<std::string> near = NearestKey(field, reader.names);
  return InvalidArgumentError("has no field `{}`{}; it has: {}", field,
                              near ? fmt::format("; did you mean `{}`?", *near) : "",
                              fmt::join(reader.names, ", "));
}

Result<std::unique_ptr<RecordReader>> OpenRecords(const Path& path, const RecordOptions& options,
                                                  const RecordPosition& from) {
  Path stem = path;
  if (stem.extension() == ".gz" || stem.extension() == ".zst") stem.replace_extension();
  const std::string kind = stem.extension().string();
  if (kind == ".parquet") {
    if (stem != path)
      return InvalidArgumentError("{}: a Parquet file is compressed inside; unpack it", path);
    return OpenParquet(path, options, from);
  }
  std::unique_ptr<ByteSource> source = TRY(OpenByteSource(path));
  if (const Status skipped = source->Skip(from.bytes); !skipped.ok())
    return skipped.WithContext(path.string());
  const bool is_json = kind == ".jsonl" || kind == ".ndjson" || kind == ".json";
  if (!is_json && !options.lines)
    return std::unique_ptr<RecordReader>(
        std::make_unique<WholeText>(std::move(source), options.max_document_bytes, from));
  // JSON may write a byte of text with six (\u0007).
  const int64_t max_line_bytes = options.max_document_bytes * (is_json ? 6 : 1) + 4096;
  return std::unique_ptr<RecordReader>(std::make_unique<Lines>(
      LineReader(std::move(source), max_line_bytes),
      is_json ? RecordKind::kJson : RecordKind::kBytes, options.max_document_bytes, from));
}

}  // namespace ulmus::data
