#include "checkpoint/zarr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>

#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {
namespace {

using ::testing::HasSubstr;

// Objects in memory, so that every byte can be changed.
class MemoryStore : public ReadStore, public WriteStore {
 public:
  std::map<std::string, std::string> objects;

  Result<std::unique_ptr<ObjectReader>> Open(const std::string& key) const override {
    const auto it = objects.find(key);
    if (it == objects.end()) return NotFoundError("{}: no such object", key);
    return std::make_unique<Reader>(it->second);
  }
  Result<std::unique_ptr<ObjectWriter>> Create(const std::string& key) override {
    return std::make_unique<Writer>(objects[key]);
  }
  std::string Describe(const std::string& key) const override { return key; }
  Result<std::map<std::string, int64_t>> List() const override { return UnimplementedError("-"); }
  Status Sync() override { return Status(); }

 private:
  class Reader : public ObjectReader {
   public:
    explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
    int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
    Status Read(int64_t offset, std::span<std::byte> out) const override {
      const auto at = static_cast<size_t>(offset);
      if (at + out.size() > bytes_.size()) return DataLossError("cut short");
      std::ranges::copy(AsBytes(bytes_).subspan(at, out.size()), out.begin());
      return Status();
    }

   private:
    std::string bytes_;
  };
  class Writer : public ObjectWriter {
   public:
    explicit Writer(std::string& object) : object_(object) {}
    Status Write(std::span<const std::byte> bytes) override {
      object_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Status();
    }
    Status Close() override { return Status(); }

   private:
    std::string& object_;
  };
};

// Element k is k % 100 (bool: k % 2), as in tests/interop.
HostTensor Counting(const TensorType& type) {
  HostTensor tensor(type);
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.Set(i, static_cast<double>(i % (type.dtype == DType::kBool ? 2 : 100)));
  return tensor;
}

// Writes an array chunk by chunk, single-threaded.
void WriteArray(MemoryStore& store, const std::string& name, const ArrayMetadata& metadata,
                const HostTensor& values) {
  store.objects[fmt::format("{}/zarr.json", name)] = ArrayMetadataText(metadata);
  const Shape grid = metadata.GridShape();
  const ByteCodecs& codecs = metadata.sharding ? metadata.sharding->codecs : metadata.codecs;
  for (int64_t i = 0; i < grid.num_elements(); ++i) {
    Dims chunk(grid.dims().size());
    Dims offsets(grid.dims().size());
    int64_t position = i;
    for (size_t axis = chunk.size(); axis-- > 0;) {
      chunk[axis] = position % grid.dims()[axis];
      position /= grid.dims()[axis];
      offsets[axis] = chunk[axis] * metadata.chunk_shape.dims()[axis];
    }
    InnerChunks inner_chunks(metadata, chunk);
    const HostTensor block = CopyBlock(values, offsets, inner_chunks.clipped_chunk());
    ChunkFileWriter writer(metadata, inner_chunks.table_size(),
                           *store.Create(fmt::format("{}/{}", name, metadata.ChunkKey(chunk))));
    std::span<const std::byte> rest = block.bytes();
    while (const std::optional<InnerChunk> inner = inner_chunks.Next()) {
      const int64_t item = SizeBytes(metadata.type.dtype);
      const auto bytes = static_cast<size_t>(inner->clipped.num_elements() * item);
      const auto full = static_cast<size_t>(metadata.inner_shape().num_elements() * item);
      ByteBuffer raw;
      ByteBuffer encoded;
      PadInnerChunk(metadata, inner->clipped, rest.first(bytes),
                    raw.Get(EncodeRoom(codecs, full)).first(full));
      rest = rest.subspan(bytes);
      ASSERT_TRUE(writer.Append(inner->index, EncodeChunk(codecs, raw, full, encoded)).ok());
    }
    EXPECT_TRUE(rest.empty());
    ASSERT_TRUE(writer.Finish().ok());
  }
}

Result<HostTensor> ReadArray(const ReadStore& store, const std::string& name,
                             ArrayReadOptions options = {}) {
  ReadCache cache;
  const ArrayReader reader = TRY(ArrayReader::Open(store, cache, name, options));
  HostTensor tensor(reader.type());
  TRY(reader.ReadRange(0, tensor.bytes()));
  return tensor;
}

ArrayMetadata Metadata(const TensorType& type, Shape chunk, Shape inner, ByteCodecs codecs) {
  ArrayMetadata metadata;
  metadata.type = type;
  metadata.chunk_shape = std::move(chunk);
  metadata.fill_value.resize(static_cast<size_t>(SizeBytes(type.dtype)));
  ShardLayout layout;
  layout.inner_shape = std::move(inner);
  layout.codecs = std::move(codecs);
  metadata.sharding = std::move(layout);
  return metadata;
}

const ByteCodec kCrc{.kind = ByteCodec::Kind::kCrc32c};
const ByteCodec kZstd{.kind = ByteCodec::Kind::kZstd, .level = 1};

TEST(Zarr, AnyGridAndCodecsGiveTheValuesBack) {
  struct Case {
    Shape shape, chunk, inner;
  };
  const Case cases[] = {
      {{}, {}, {}},
      {{0, 5}, {1, 5}, {1, 5}},
      {{7}, {7}, {7}},
      {{7}, {8}, {2}},            // chunk rounded up beyond the array
      {{10, 6}, {4, 3}, {2, 3}},  // last row of chunks cut
      {{5, 7, 9}, {2, 4, 9}, {1, 2, 9}},
      {{3, 1, 2}, {1, 1, 2}, {1, 1, 1}},
  };
  for (const Case& c : cases) {
    for (const ByteCodecs& codecs : {ByteCodecs{}, ByteCodecs{kCrc}, ByteCodecs{kZstd, kCrc},
                                     ByteCodecs{kCrc, kZstd}, ByteCodecs{kCrc, kCrc}}) {
      const ArrayMetadata metadata = Metadata({DType::kI32, c.shape}, c.chunk, c.inner, codecs);
      ASSERT_TRUE(IsStreamable(metadata));
      const HostTensor values = Counting(metadata.type);
      MemoryStore store;
      WriteArray(store, "a", metadata, values);
      const auto found = ReadArray(store, "a");
      ASSERT_TRUE(found.ok()) << found.status().ToString();
      EXPECT_TRUE(std::ranges::equal(found->bytes(), values.bytes())) << c.shape.ToString();
    }
  }
}

TEST(Zarr, EveryBlockOfASmallArrayIsItsPart) {
  const ArrayMetadata metadata = Metadata({DType::kI16, {5, 6}}, {4, 4}, {2, 4}, {kCrc});
  MemoryStore store;
  const HostTensor values = Counting(metadata.type);
  WriteArray(store, "a", metadata, values);
  ReadCache cache;
  const auto reader = ArrayReader::Open(store, cache, "a");
  ASSERT_TRUE(reader.ok());
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 6; ++column) {
      for (int64_t rows = 0; rows <= 5 - row; ++rows) {
        for (int64_t columns = 0; columns <= 6 - column; ++columns) {
          HostTensor block(TensorType{DType::kI16, {rows, columns}});
          ASSERT_TRUE(reader->ReadBlock({row, column}, {rows, columns}, block.bytes()).ok());
          ASSERT_TRUE(std::ranges::equal(block.bytes(),
                                         CopyBlock(values, {row, column}, {rows, columns}).bytes()))
              << row << " " << column << " " << rows << " " << columns;
        }
      }
    }
  }
  for (int64_t first = 0; first < 30; ++first) {
    for (int64_t count = 0; count <= 30 - first; ++count) {
      std::vector<std::byte> out(static_cast<size_t>(2 * count));
      ASSERT_TRUE(reader->ReadRange(first, out).ok());
      ASSERT_TRUE(std::ranges::equal(
          out, values.bytes().subspan(static_cast<size_t>(2 * first), out.size())));
    }
  }
}

TEST(Zarr, EveryFlippedBitOfAChunkFileIsSeen) {
  for (const ByteCodecs& codecs : {ByteCodecs{kCrc}, ByteCodecs{kZstd, kCrc}}) {
    const ArrayMetadata metadata = Metadata({DType::kF32, {5, 3}}, {6, 3}, {2, 3}, codecs);
    MemoryStore store;
    WriteArray(store, "a", metadata, Counting(metadata.type));
    const std::string whole = store.objects["a/c/0/0"];
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string& chunk = store.objects["a/c/0/0"] = whole;
      chunk[bit / 8] = static_cast<char>(chunk[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_EQ(ReadArray(store, "a").status().code(), StatusCode::kDataLoss) << "bit " << bit;
    }
    for (size_t size = 0; size < whole.size(); ++size) {
      store.objects["a/c/0/0"] = whole.substr(0, size);
      EXPECT_EQ(ReadArray(store, "a").status().code(), StatusCode::kDataLoss) << size << " bytes";
    }
  }
}

TEST(Zarr, AbsentChunkIsDamageUnlessTheWriterMayLeaveItOut) {
  const ArrayMetadata metadata = Metadata({DType::kF32, {4, 3}}, {2, 3}, {1, 3}, {kCrc});
  MemoryStore store;
  WriteArray(store, "a", metadata, Counting(metadata.type));
  store.objects.erase("a/c/1/0");
  const Status status = ReadArray(store, "a").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("a/c/1/0"));
  const auto filled = ReadArray(store, "a", {.absent_is_damage = false});
  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(filled->Get(5), 5);
  EXPECT_EQ(filled->Get(6), 0);
}

// Tables that no writer would write; each with a correct checksum.
TEST(Zarr, HostileShardTablesAreRefusedBeforeMemoryIsAsked) {
  const ArrayMetadata metadata = Metadata({DType::kF32, {4}}, {4}, {2}, {kCrc});
  MemoryStore store;
  WriteArray(store, "a", metadata, Counting(metadata.type));
  const std::string content = store.objects["a/c/0"].substr(0, 24);
  const uint64_t most = ~uint64_t{0};
  for (const ShardEntry& entry :
       {ShardEntry{.offset = 0, .size = most - 1}, ShardEntry{.offset = most - 1, .size = 12},
        ShardEntry{.offset = most, .size = 12}, ShardEntry{.offset = 0, .size = most},
        ShardEntry{.offset = 13, .size = 12}, ShardEntry{.offset = 0, .size = 24},
        ShardEntry{.offset = 0, .size = 0}, ShardEntry{.offset = uint64_t{1} << 63, .size = 12},
        ShardEntry{.offset = 20, .size = 12}}) {
    const ShardEntry entries[] = {{.offset = 0, .size = 12}, entry};
    const std::vector<std::byte> index = EncodeShardIndex(*metadata.sharding, entries);
    store.objects["a/c/0"] =
        content + std::string(reinterpret_cast<const char*>(index.data()), index.size());
    EXPECT_EQ(ReadArray(store, "a").status().code(), StatusCode::kDataLoss)
        << entry.offset << " " << entry.size;
  }
}

TEST(Zarr, CompressedBombIsRefused) {
  ArrayMetadata metadata = Metadata({DType::kU8, {1 << 20}}, {1 << 20}, {1 << 20}, {kZstd});
  MemoryStore store;
  WriteArray(store, "a", metadata, HostTensor(metadata.type));
  // The same bytes for an array that claims less, and one that claims more than may be decoded.
  const std::string chunk = store.objects["a/c/0"];
  metadata = Metadata({DType::kU8, {1 << 10}}, {1 << 10}, {1 << 10}, {kZstd});
  store.objects["a/zarr.json"] = ArrayMetadataText(metadata);
  EXPECT_EQ(ReadArray(store, "a").status().code(), StatusCode::kDataLoss);
  const int64_t huge = int64_t{1} << 40;
  metadata = Metadata({DType::kU8, {huge}}, {huge}, {huge}, {kZstd});
  store.objects["a/zarr.json"] = ArrayMetadataText(metadata);
  ReadCache cache;
  EXPECT_EQ(ArrayReader::Open(store, cache, "a").status().code(), StatusCode::kUnimplemented);
}

// Shapes that a writer of weights meets: inner chunks divide the chunk and stay near the target.
TEST(Zarr, ChosenInnerChunksDivideAndStayBounded) {
  const int64_t target = 4 << 20;
  for (const bool single : {true, false}) {
    for (const Shape& shape :
         {Shape{}, Shape{0, 5}, Shape{4096}, Shape{100278, 4096}, Shape{11008, 4096},
          Shape{1000003}, Shape{15485863}, Shape{7, 15485863}, Shape{4096, 11008},
          Shape{3, 100, 100003}, Shape{1, 1, 1}, Shape{12534, 5120}}) {
      const ChunkShapes shapes = ChooseChunkShapes(shape, DType::kF32, target, single);
      ArrayMetadata metadata = Metadata({DType::kF32, shape}, shapes.chunk, shapes.inner, {});
      EXPECT_TRUE(IsStreamable(metadata)) << shape.ToString();
      EXPECT_TRUE(ParseArrayMetadata(ArrayMetadataText(metadata)).ok()) << shape.ToString();
      if (!single) {
        for (size_t axis = 0; axis < shape.dims().size(); ++axis)
          EXPECT_EQ(shapes.chunk.dims()[axis], std::max<int64_t>(1, shape.dims()[axis]));
      } else {
        EXPECT_LE(shapes.inner.num_elements() * 4, target) << shape.ToString();
        // Padding is no more than a hundredth.
        const double elements = static_cast<double>(std::max<int64_t>(1, shape.num_elements()));
        EXPECT_LE(static_cast<double>(shapes.chunk.num_elements()), std::max(5.0, 1.01 * elements))
            << shape.ToString();
      }
    }
  }
}

// Bytes that zarr-python, TensorStore and Orbax wrote: tests/interop/checkpoint_interop.py
// --fixtures.
TEST(Zarr, ReadsWhatTheRealPackagesWrote) {
  const char* source = std::getenv("ULMUS_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "set ULMUS_SOURCE_DIR to the repository";
  const LocalReadStore store(Path(source) / "src/checkpoint/testdata/zarr");
  const auto files = store.List();
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  int arrays = 0;
  for (const auto& [key, size] : *files) {
    if (!key.ends_with("/zarr.json")) continue;
    const std::string name = key.substr(0, key.rfind('/'));
    const auto found = ReadArray(store, name, {.absent_is_damage = false});
    ASSERT_TRUE(found.ok()) << name << ": " << found.status().ToString();
    ++arrays;
    HostTensor expected = Counting(found->type());
    if (name == "orbax/zeros") expected = HostTensor(found->type());
    if (name == "zarr.partial") {
      for (int64_t i = 0; i < 16; ++i)
        expected.Set(i, i % 4 < 2 && i < 8 ? 1 : std::numeric_limits<double>::infinity());
    }
    EXPECT_TRUE(std::ranges::equal(found->bytes(), expected.bytes())) << name;
  }
  EXPECT_EQ(arrays, 25);
}

}  // namespace
}  // namespace ulmus::checkpoint
