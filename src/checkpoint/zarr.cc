#include "checkpoint/zarr.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kMaxOpenChunks = 32;

// Row-major position -> index along each axis.
Dims Unravel(int64_t position, const Shape& shape) {
  Dims index(shape.dims().size());
  for (size_t axis = index.size(); axis-- > 0;) {
    index[axis] = position % shape.dims()[axis];
    position /= shape.dims()[axis];
  }
  return index;
}

Dims Times(const Dims& a, const Shape& b) {
  Dims product(a.size());
  for (size_t axis = 0; axis < a.size(); ++axis) product[axis] = a[axis] * b.dims()[axis];
  return product;
}

int64_t FlatOffset(const Dims& index, const Dims& strides) {
  int64_t offset = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * strides[axis];
  return offset;
}

// A part of the array: from `offsets` on, of `shape`.
struct Region {
  Dims offsets;
  Shape shape;
  bool empty() const { return shape.num_elements() == 0; }
};

Region Intersect(const Region& a, const Region& b) {
  Region both{a.offsets, Shape()};
  Dims sizes(a.offsets.size());
  for (size_t axis = 0; axis < a.offsets.size(); ++axis) {
    const int64_t begin = std::max(a.offsets[axis], b.offsets[axis]);
    const int64_t end =
        std::min(a.offsets[axis] + a.shape.dims()[axis], b.offsets[axis] + b.shape.dims()[axis]);
    both.offsets[axis] = begin;
    sizes[axis] = std::max<int64_t>(0, end - begin);
  }
  both.shape = Shape(std::move(sizes));
  return both;
}

// Calls run(position of the first element in the region, elements) for the longest runs that are
// contiguous in both `outer` shapes, which hold the region.
template <class Run>
void ForEachRun(const Shape& region, const Shape& outer_a, const Shape& outer_b, Run run) {
  // The last axis that is not whole in both ends a run.
  size_t axis = region.dims().size();
  int64_t elements = 1;
  while (axis > 0) {
    --axis;
    const int64_t size = region.dims()[axis];
    elements *= size;
    if (size != outer_a.dims()[axis] || size != outer_b.dims()[axis]) break;
  }
  Dims position(region.dims().size(), 0);
  while (true) {
    run(position, elements);
    size_t step = axis;
    while (step-- > 0) {
      if (++position[step] < region.dims()[step]) break;
      position[step] = 0;
    }
    if (step == static_cast<size_t>(-1)) return;
  }
}

Dims Minus(const Dims& a, const Dims& b) {
  Dims difference(a.size());
  for (size_t axis = 0; axis < a.size(); ++axis) difference[axis] = a[axis] - b[axis];
  return difference;
}

// Copies `region` from an array part that lies at `from` to one that lies at `to`.
void CopyRegion(const Region& region, const Region& from, std::span<const std::byte> in,
                const Region& to, std::span<std::byte> out, int64_t item_bytes) {
  const Dims in_strides = from.shape.Strides();
  const Dims out_strides = to.shape.Strides();
  const int64_t in_base = FlatOffset(Minus(region.offsets, from.offsets), in_strides);
  const int64_t out_base = FlatOffset(Minus(region.offsets, to.offsets), out_strides);
  ForEachRun(region.shape, from.shape, to.shape, [&](const Dims& position, int64_t elements) {
    const int64_t in_at = (in_base + FlatOffset(position, in_strides)) * item_bytes;
    const int64_t out_at = (out_base + FlatOffset(position, out_strides)) * item_bytes;
    std::memcpy(out.data() + out_at, in.data() + in_at, static_cast<size_t>(elements * item_bytes));
  });
}

// The bytes of `region` in `out`, if they follow one another there.
std::optional<std::span<std::byte>> ContiguousPart(const Region& region, const Region& to,
                                                   std::span<std::byte> out, int64_t item_bytes) {
  bool partial = false;  // an axis behind the first one longer than 1 must be whole
  for (size_t axis = 0; axis < region.offsets.size(); ++axis) {
    const int64_t size = region.shape.dims()[axis];
    if (partial && size != to.shape.dims()[axis]) return std::nullopt;
    if (size != 1) partial = true;
  }
  const int64_t first = FlatOffset(Minus(region.offsets, to.offsets), to.shape.Strides());
  return out.subspan(static_cast<size_t>(first * item_bytes),
                     static_cast<size_t>(region.shape.num_elements() * item_bytes));
}

void Fill(std::span<std::byte> out, std::span<const std::byte> element) {
  if (std::ranges::all_of(element, [](std::byte b) { return b == std::byte{0}; })) {
    std::ranges::fill(out, std::byte{0});
    return;
  }
  for (size_t at = 0; at < out.size(); at += element.size())
    std::memcpy(out.data() + at, element.data(), element.size());
}

}  // namespace

// --- ReadCache

template <class T>
std::shared_ptr<const T> ReadCache::Find(Entries<T>& entries, const std::string& key) {
  std::lock_guard lock(mutex_);
  for (auto it = entries.begin(); it != entries.end(); ++it) {
    if (it->first != key) continue;
    entries.splice(entries.begin(), entries, it);
    return it->second;
  }
  return nullptr;
}

template <class T, class Size>
void ReadCache::Add(Entries<T>& entries, const std::string& key, std::shared_ptr<const T> value,
                    Size size) {
  std::lock_guard lock(mutex_);
  // Two threads may have made the same value at once.
  std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
  entries.emplace_front(key, std::move(value));
  size_t total = 0;
  size_t count = 0;
  std::erase_if(entries, [&](const auto& entry) {
    total += size(*entry.second);
    return ++count > 1 && (count > kMaxOpenChunks || total > static_cast<size_t>(limit_bytes_));
  });
}

std::shared_ptr<const ReadCache::OpenChunk> ReadCache::FindChunk(const std::string& key) {
  return Find(chunks_, key);
}
void ReadCache::AddChunk(const std::string& key, std::shared_ptr<const OpenChunk> chunk) {
  Add(chunks_, key, std::move(chunk),
      [](const OpenChunk& open) { return open.entries.size() * sizeof(ShardEntry); });
}
std::shared_ptr<const std::vector<std::byte>> ReadCache::FindBytes(const std::string& key) {
  return Find(bytes_, key);
}
void ReadCache::AddBytes(const std::string& key,
                         std::shared_ptr<const std::vector<std::byte>> bytes) {
  if (static_cast<int64_t>(bytes->size()) > limit_bytes_) return;
  Add(bytes_, key, std::move(bytes), [](const std::vector<std::byte>& b) { return b.size(); });
}

// --- ArrayReader

struct ArrayReader::Target {
  Region region;
  std::span<std::byte> out;
};

Result<ArrayReader> ArrayReader::Open(const ReadStore& store, ReadCache& cache, std::string name,
                                      ArrayReadOptions options) {
  const std::string text =
      TRY(store.ReadText(fmt::format("{}/{}", name, kZarrJson), kMaxZarrJsonBytes));
  return Parse(store, cache, std::move(name), text, options);
}

Result<ArrayReader> ArrayReader::Parse(const ReadStore& store, ReadCache& cache, std::string name,
                                       std::string_view zarr_json, ArrayReadOptions options) {
  ArrayReader reader(store, cache, std::move(name), options);
  const std::string key = fmt::format("{}/{}", reader.name_, kZarrJson);
  Result<ArrayMetadata> metadata = ParseArrayMetadata(zarr_json);
  if (!metadata.ok()) {
    const Status& error = metadata.error();
    // What the file says is wrong, not what the user typed.
    const StatusCode code =
        error.code() == StatusCode::kUnimplemented ? error.code() : StatusCode::kDataLoss;
    return Status(code, fmt::format("{}: {}", store.Describe(key), error.message()));
  }
  reader.metadata_ = std::move(*metadata);
  const int64_t inner_elements = reader.metadata_.inner_shape().num_elements();
  if (inner_elements > options.max_chunk_bytes / SizeBytes(reader.type().dtype))
    return UnimplementedError(
        "{}: chunks of {} are decoded in one piece, which would take more than {} bytes; write the "
        "array with smaller (inner) chunks",
        store.Describe(key), reader.metadata_.inner_shape().ToString(), options.max_chunk_bytes);
  return reader;
}

Status ArrayReader::ReadRange(int64_t first, std::span<std::byte> out) const {
  const Shape& shape = type().shape;
  const int64_t item = SizeBytes(type().dtype);
  const auto size = static_cast<int64_t>(out.size());
  CHECK(size % item == 0 && first >= 0 && size / item <= shape.num_elements() - first,
        "{}: {} bytes from element {} of {}", name_, size, first, type().ToString());
  const Dims strides = shape.Strides();
  int64_t rest = size / item;
  while (rest > 0) {
    // The largest block that starts here: some indices of axis k, all of the axes behind it.
    size_t k = 0;
    while (k < strides.size() && (first % strides[k] != 0 || rest < strides[k])) ++k;
    Dims offsets = Unravel(first, shape);
    Dims block(strides.size(), 1);
    int64_t elements = 1;
    if (k < strides.size()) {
      block[k] = std::min(rest / strides[k], shape.dims()[k] - offsets[k]);
      elements = block[k] * strides[k];
      std::copy(shape.dims().begin() + static_cast<int64_t>(k) + 1, shape.dims().end(),
                block.begin() + static_cast<int64_t>(k) + 1);
    }
    const auto bytes = static_cast<size_t>(elements * item);
    TRY(ReadBlock(offsets, Shape(std::move(block)), out.first(bytes)));
    out = out.subspan(bytes);
    first += elements;
    rest -= elements;
  }
  return Status();
}

Status ArrayReader::ReadBlock(const Dims& offsets, const Shape& block,
                              std::span<std::byte> out) const {
  const Shape& shape = type().shape;
  CHECK(block.rank() == shape.rank() && offsets.size() == shape.dims().size(), "{}: block {} of {}",
        name_, block.ToString(), shape.ToString());
  for (size_t axis = 0; axis < offsets.size(); ++axis) {
    CHECK(offsets[axis] >= 0 && block.dims()[axis] >= 0 &&
              offsets[axis] <= shape.dims()[axis] - block.dims()[axis],
          "{}: block {} at {} of axis {} leaves {}", name_, block.ToString(), offsets[axis], axis,
          shape.ToString());
  }
  CHECK(static_cast<int64_t>(out.size()) == block.num_elements() * SizeBytes(type().dtype),
        "{}: {} bytes for block {}", name_, out.size(), block.ToString());
  if (out.empty()) return Status();
  const Target target{.region = {offsets, block}, .out = out};
  // Chunks first..last along each axis hold the block.
  Dims first(offsets.size());
  Dims counts(offsets.size());
  for (size_t axis = 0; axis < offsets.size(); ++axis) {
    const int64_t chunk = metadata_.chunk_shape.dims()[axis];
    first[axis] = offsets[axis] / chunk;
    counts[axis] = (offsets[axis] + block.dims()[axis] - 1) / chunk - first[axis] + 1;
  }
  const Shape grid(counts);
  for (int64_t i = 0; i < grid.num_elements(); ++i) {
    Dims chunk = Unravel(i, grid);
    for (size_t axis = 0; axis < chunk.size(); ++axis) chunk[axis] += first[axis];
    TRY(ReadChunk(chunk, target));
  }
  return Status();
}

Result<std::shared_ptr<const ReadCache::OpenChunk>> ArrayReader::OpenChunk(
    const std::string& key) const {
  if (auto cached = cache_->FindChunk(key)) return cached;
  auto open = std::make_shared<ReadCache::OpenChunk>();
  Result<std::unique_ptr<ObjectReader>> object = store_->Open(key);
  if (!object.ok() && object.error().code() != StatusCode::kNotFound) return object.error();
  if (object.ok()) {
    open->object = std::move(*object);
    if (metadata_.sharding) {
      const ShardLayout& layout = *metadata_.sharding;
      const int64_t num_chunks =
          metadata_.chunk_shape.num_elements() / layout.inner_shape.num_elements();
      const int64_t index_bytes = ShardIndexBytes(layout, num_chunks);
      const int64_t file_bytes = open->object->size_bytes();
      // The file bounds the table before any memory is asked for.
      if (index_bytes > file_bytes)
        return DataLossError("{}: {} bytes, shorter than its shard index of {}",
                             store_->Describe(key), file_bytes, index_bytes);
      std::vector<std::byte> encoded(static_cast<size_t>(index_bytes));
      TRY(open->object->Read(layout.index_at_end ? file_bytes - index_bytes : 0, encoded));
      Result<std::vector<ShardEntry>> entries =
          DecodeShardIndex(layout, encoded, num_chunks, file_bytes);
      if (!entries.ok()) return entries.error().WithContext(store_->Describe(key));
      open->entries = std::move(*entries);
    }
  }
  cache_->AddChunk(key, open);
  return std::shared_ptr<const ReadCache::OpenChunk>(open);
}

Status ArrayReader::FillAbsent(const std::string& key, const Dims& origin, const Shape& shape,
                               const Target& target) const {
  if (options_.absent_is_damage)
    return DataLossError("{}: the chunk at {} of {} is missing", store_->Describe(key),
                         Shape(origin).ToString(), type().ToString());
  const int64_t item = SizeBytes(type().dtype);
  const Region part = Intersect({origin, shape}, target.region);
  const Dims strides = target.region.shape.Strides();
  const int64_t base = FlatOffset(Minus(part.offsets, target.region.offsets), strides);
  ForEachRun(
      part.shape, target.region.shape, target.region.shape,
      [&](const Dims& position, int64_t elements) {
        const int64_t at = (base + FlatOffset(position, strides)) * item;
        Fill(target.out.subspan(static_cast<size_t>(at), static_cast<size_t>(elements * item)),
             metadata_.fill_value);
      });
  return Status();
}

Status ArrayReader::ReadChunk(const Dims& chunk, const Target& target) const {
  const std::string key = fmt::format("{}/{}", name_, metadata_.ChunkKey(chunk));
  const Dims origin = Times(chunk, metadata_.chunk_shape);
  const auto open = TRY(OpenChunk(key));
  if (open->object == nullptr) return FillAbsent(key, origin, metadata_.chunk_shape, target);
  const Shape& inner = metadata_.inner_shape();
  const Region part = Intersect({origin, metadata_.chunk_shape}, target.region);
  Dims first(origin.size());
  Dims counts(origin.size());
  Dims table(origin.size());
  for (size_t axis = 0; axis < origin.size(); ++axis) {
    const int64_t size = inner.dims()[axis];
    const int64_t begin = part.offsets[axis] - origin[axis];
    first[axis] = begin / size;
    counts[axis] = (begin + part.shape.dims()[axis] - 1) / size - first[axis] + 1;
    table[axis] = metadata_.chunk_shape.dims()[axis] / size;
  }
  const Dims table_strides = Shape(table).Strides();
  const Shape grid(counts);
  for (int64_t i = 0; i < grid.num_elements(); ++i) {
    Dims index = Unravel(i, grid);
    Dims inner_origin(index.size());
    for (size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] += first[axis];
      inner_origin[axis] = origin[axis] + index[axis] * inner.dims()[axis];
    }
    TRY(ReadInner(*open, key, FlatOffset(index, table_strides), inner_origin, target));
  }
  return Status();
}

Status ArrayReader::ReadInner(const ReadCache::OpenChunk& chunk, const std::string& key,
                              int64_t index, const Dims& origin, const Target& target) const {
  const Region inner{origin, metadata_.inner_shape()};
  const int64_t item = SizeBytes(type().dtype);
  const int64_t inner_bytes = inner.shape.num_elements() * item;
  const ByteCodecs& codecs = metadata_.sharding ? metadata_.sharding->codecs : metadata_.codecs;
  ShardEntry entry{.offset = 0, .size = static_cast<uint64_t>(chunk.object->size_bytes())};
  if (metadata_.sharding) entry = chunk.entries[static_cast<size_t>(index)];
  if (entry.absent()) return FillAbsent(key, origin, inner.shape, target);

  const auto where = [&] {
    return fmt::format("{}: inner chunk {} at byte {}", store_->Describe(key), index, entry.offset);
  };
  // What a chunk of this size can take at most: nothing larger is read.
  const bool fixed = HasFixedSize(codecs);
  const auto most = static_cast<uint64_t>(MaxEncodedBytes(codecs, inner_bytes));
  if (fixed ? entry.size != most : entry.size > 2 * most + 65536)
    return DataLossError("{}: {} bytes, expected {}{}", where(), entry.size,
                         fixed ? "" : "at most ", most);

  const auto offset = static_cast<int64_t>(entry.offset);
  const Region part = Intersect(inner, target.region);
  const bool whole = part.shape == inner.shape;
  const auto direct = whole ? ContiguousPart(part, target.region, target.out, item) : std::nullopt;
  if (direct && fixed && codecs.size() == 1) {
    // Straight to where it belongs; the checksum is all that is read besides.
    std::vector<std::byte> crc(sizeof(uint32_t));
    TRY(chunk.object->Read(offset, *direct));
    TRY(chunk.object->Read(offset + inner_bytes, crc));
    return CheckCrc(*direct, crc).WithContext(where());
  }
  const std::string part_key = fmt::format("{}#{}", key, index);
  auto decoded = whole ? nullptr : cache_->FindBytes(part_key);
  if (decoded == nullptr) {
    thread_local ByteBuffer scratch;
    ByteBuffer large;  // not kept: foreign arrays may have chunks of any size
    constexpr uint64_t kKeptBytes = 16 << 20;
    const std::span<std::byte> encoded =
        (entry.size <= kKeptBytes ? scratch : large).Get(static_cast<size_t>(entry.size));
    TRY(chunk.object->Read(offset, encoded));
    if (direct) return DecodeChunk(codecs, encoded, *direct).WithContext(where());
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(inner_bytes));
    TRY(DecodeChunk(codecs, encoded, *bytes).WithContext(where()));
    if (!whole) cache_->AddBytes(part_key, bytes);
    decoded = std::move(bytes);
  }
  CopyRegion(part, inner, *decoded, target.region, target.out, item);
  return Status();
}

// --- Writing

ChunkShapes ChooseChunkShapes(const Shape& chunk, DType dtype, int64_t target_bytes, bool single) {
  Dims outer = chunk.dims();
  for (int64_t& size : outer) size = std::max<int64_t>(size, 1);
  Dims inner = outer;
  int64_t bytes = Shape(inner).num_elements() * SizeBytes(dtype);
  for (size_t axis = 0; axis < inner.size() && bytes > target_bytes; ++axis) {
    const int64_t size = inner[axis];
    const int64_t row_bytes = bytes / size;
    const int64_t most = std::max<int64_t>(target_bytes / row_bytes, 1);
    int64_t rows = most;
    while (size % rows != 0) --rows;
    // An awkward size (a prime) has no good divisor.
    if (most >= 4 && rows < most / 4) {
      if (single) {
        // As even as can be: what is rounded up is less than one row per inner chunk.
        const int64_t pieces = (size + most - 1) / most;
        rows = (size + pieces - 1) / pieces;
        outer[axis] = (size + rows - 1) / rows * rows;
      } else {
        rows = most;
        while (size % rows != 0) ++rows;
      }
    }
    inner[axis] = rows;
    bytes = row_bytes * rows;
    if (rows > 1) break;
  }
  return {Shape(std::move(outer)), Shape(std::move(inner))};
}

bool IsStreamable(const ArrayMetadata& metadata) {
  const Dims& inner = metadata.inner_shape().dims();
  const Dims& chunk = metadata.chunk_shape.dims();
  size_t axis = 0;
  while (axis < inner.size() && inner[axis] == 1) ++axis;
  for (++axis; axis < inner.size(); ++axis) {
    if (inner[axis] != chunk[axis]) return false;
  }
  return true;
}

InnerChunks::InnerChunks(const ArrayMetadata& metadata, Dims chunk)
    : metadata_(metadata), chunk_(std::move(chunk)) {
  CHECK(chunk_.size() == metadata.chunk_shape.dims().size(), "chunk of {} axes in {}",
        chunk_.size(), metadata.type.ToString());
  const Shape grid = metadata.GridShape();
  Dims counts(chunk_.size());
  for (size_t axis = 0; axis < chunk_.size(); ++axis) {
    CHECK(chunk_[axis] >= 0 && chunk_[axis] < grid.dims()[axis], "chunk {} of the grid {}",
          Shape(chunk_).ToString(), grid.ToString());
    counts[axis] = metadata.chunk_shape.dims()[axis] / metadata.inner_shape().dims()[axis];
  }
  counts_ = Shape(std::move(counts));
}

Shape InnerChunks::clipped_chunk() const {
  return Intersect({Times(chunk_, metadata_.chunk_shape), metadata_.chunk_shape},
                   {Dims(chunk_.size(), 0), metadata_.type.shape})
      .shape;
}

std::optional<InnerChunk> InnerChunks::Next() {
  while (next_ < counts_.num_elements()) {
    const int64_t index = next_++;
    Dims origin = Times(chunk_, metadata_.chunk_shape);
    const Dims inner = Times(Unravel(index, counts_), metadata_.inner_shape());
    for (size_t axis = 0; axis < origin.size(); ++axis) origin[axis] += inner[axis];
    const Region part = Intersect({std::move(origin), metadata_.inner_shape()},
                                  {Dims(chunk_.size(), 0), metadata_.type.shape});
    if (!part.empty()) return InnerChunk{.index = index, .clipped = part.shape};
  }
  return std::nullopt;
}

void PadInnerChunk(const ArrayMetadata& metadata, const Shape& clipped,
                   std::span<const std::byte> in, std::span<std::byte> out) {
  Fill(out, metadata.fill_value);
  const Dims zero(clipped.dims().size(), 0);
  const Region part{zero, clipped};
  CopyRegion(part, part, in, {zero, metadata.inner_shape()}, out, SizeBytes(metadata.type.dtype));
}

ChunkFileWriter::ChunkFileWriter(const ArrayMetadata& metadata, int64_t table_size,
                                 std::unique_ptr<ObjectWriter> object)
    : metadata_(metadata), object_(std::move(object)), entries_(static_cast<size_t>(table_size)) {
  CHECK(!metadata.sharding || metadata.sharding->index_at_end,
        "an index at the start cannot be written from a stream");
}

Status ChunkFileWriter::Write(std::span<const std::byte> bytes) {
  hash_.Update(bytes);
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return object_->Write(bytes);
}

Status ChunkFileWriter::Append(int64_t index, std::span<const std::byte> encoded) {
  ShardEntry& entry = entries_[static_cast<size_t>(index)];
  CHECK(entry.absent(), "inner chunk {} written twice", index);
  entry = {.offset = static_cast<uint64_t>(size_bytes_), .size = encoded.size()};
  return Write(encoded);
}

Status ChunkFileWriter::Finish() {
  if (metadata_.sharding) TRY(Write(EncodeShardIndex(*metadata_.sharding, entries_)));
  return object_->Close();
}

}  // namespace ulmus::checkpoint
