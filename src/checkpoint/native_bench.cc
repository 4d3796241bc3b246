// Saving and loading a checkpoint against plain files of the same bytes, and the costs behind the
// choice of codec and checksum (docs/decisions/0005-checkpoint-codec.md). Writes below $TMPDIR.
//   checkpoint_bench --benchmark_filter=Native
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "checkpoint/native.h"
#include "tensor/dtype.h"

namespace ulmus::checkpoint {
namespace {

constexpr int64_t kRows = 4096, kColumns = 4096;  // 64 MiB in f32
constexpr int64_t kTensors = 6;
constexpr int64_t kBytes = kTensors * kRows * kColumns * 4;
constexpr size_t kPieceBytes = size_t{8} << 20;

// Weights as after initialisation: normal, standard deviation 0.02 (the sum of uniform numbers).
const std::vector<float>& Weights() {
  static const std::vector<float> weights = [] {
    std::vector<float> values(static_cast<size_t>(kRows * kColumns));
    uint64_t state = 1;
    for (float& value : values) {
      float sum = -6;
      for (int i = 0; i < 12; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state >> 40) * 0x1p-24f;
      }
      value = 0.02f * sum;
    }
    return values;
  }();
  return weights;
}

std::span<const std::byte> WeightBytes() { return std::as_bytes(std::span(Weights())); }

std::vector<TensorInfo> Infos() {
  std::vector<TensorInfo> infos;
  for (int64_t i = 0; i < kTensors; ++i)
    infos.push_back({fmt::format("t{}", i), {DType::kF32, {kRows, kColumns}}});
  return infos;
}

template <class Use>
void ForEachPiece(Use use) {
  for (std::span<const std::byte> rest = WeightBytes(); !rest.empty();) {
    const size_t size = std::min(kPieceBytes, rest.size());
    use(rest.first(size));
    rest = rest.subspan(size);
  }
}

void Save(const Path& path, std::optional<int> zstd_level) {
  const auto writer =
      NativeWriter::Create(path, Infos(), {.zstd_level = zstd_level, .overwrite = true});
  CHECK(writer.ok(), "{}", writer.status().ToString());
  for (const TensorInfo& info : Infos()) {
    CHECK((*writer)->Begin(info).ok(), "begin");
    ForEachPiece(
        [&](std::span<const std::byte> piece) { CHECK((*writer)->Append(piece).ok(), "append"); });
  }
  const Status status = (*writer)->Commit();
  CHECK(status.ok(), "{}", status.ToString());
}

void SaveRaw(const Path& path) {
  for (int64_t i = 0; i < kTensors; ++i) {
    auto file = AtomicFile::Create(path / fmt::format("t{}", i));
    CHECK(file.ok(), "{}", file.status().ToString());
    ForEachPiece(
        [&](std::span<const std::byte> piece) { CHECK(file->Write(piece).ok(), "write"); });
    CHECK(file->Commit().ok(), "commit");
  }
}

// Drops clean pages of a checkpoint's files, so that reading goes to the disk.
void DropCache(const Path& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const FileDescriptor fd(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    CHECK(posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
  }
}

void SetThroughput(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * kBytes);
}

void RawWrite(benchmark::State& state) {
  const TempDir folder;
  Weights();
  for (auto _ : state) SaveRaw(folder.path());
  SetThroughput(state);
}

void NativeWrite(benchmark::State& state, std::optional<int> zstd_level) {
  const TempDir folder;
  Weights();
  for (auto _ : state) Save(folder.path() / "c", zstd_level);
  SetThroughput(state);
  const auto report = VerifyCheckpoint(folder.path() / "c");
  CHECK(report.ok() && report->holds(), "the checkpoint does not verify");
  state.counters["stored_per_byte"] =
      static_cast<double>(report->bytes) / static_cast<double>(kBytes);
}

void RawRead(benchmark::State& state, bool cold) {
  const TempDir folder;
  SaveRaw(folder.path());
  std::vector<std::byte> piece(kPieceBytes);
  for (auto _ : state) {
    state.PauseTiming();
    if (cold) DropCache(folder.path());
    state.ResumeTiming();
    for (int64_t i = 0; i < kTensors; ++i) {
      const LocalReadStore store(folder.path());
      const auto file = store.Open(fmt::format("t{}", i));
      for (int64_t at = 0; at < (*file)->size_bytes(); at += static_cast<int64_t>(kPieceBytes))
        CHECK((*file)->Read(at, piece).ok(), "read");
    }
  }
  SetThroughput(state);
}

void NativeRead(benchmark::State& state, std::optional<int> zstd_level, bool cold) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  Save(path, zstd_level);
  std::vector<std::byte> piece(kPieceBytes);
  for (auto _ : state) {
    state.PauseTiming();
    if (cold) DropCache(path);
    state.ResumeTiming();
    const auto reader = NativeReader::Open(path);
    CHECK(reader.ok(), "{}", reader.status().ToString());
    for (int64_t i = 0; i < kTensors; ++i) {
      for (int64_t at = 0; at < kRows * kColumns; at += static_cast<int64_t>(kPieceBytes / 4))
        CHECK((*reader)->Read(i, at, piece).ok(), "read");
    }
  }
  SetThroughput(state);
  CHECK(std::ranges::equal(piece, WeightBytes().last(kPieceBytes)), "other values");
}

void Verify(benchmark::State& state) {
  const TempDir folder;
  Save(folder.path() / "c", std::nullopt);
  for (auto _ : state) CHECK(VerifyCheckpoint(folder.path() / "c")->holds(), "verify");
  SetThroughput(state);
}

// --- Pieces of 4 MiB in memory

template <class Function>
void InMemory(benchmark::State& state, Function function) {
  const std::span<const std::byte> bytes =
      WeightBytes().first(static_cast<size_t>(kInnerChunkBytes));
  for (auto _ : state) function(bytes);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
}

// Ratio and speed of zstd for weights in one dtype.
void Zstd(benchmark::State& state, int level, bool bf16, bool decode) {
  std::vector<std::byte> bytes(WeightBytes().begin(), WeightBytes().begin() + kInnerChunkBytes);
  if (bf16) {
    std::vector<BF16> rounded;
    for (size_t i = 0; i < bytes.size() / 2; ++i) rounded.emplace_back(Weights()[i]);
    std::ranges::copy(std::as_bytes(std::span(rounded)), bytes.begin());
  }
  const ByteCodecs codecs = {{.kind = ByteCodec::Kind::kZstd, .level = level}};
  ByteBuffer raw;
  ByteBuffer out;
  std::ranges::copy(bytes, raw.Get(EncodeRoom(codecs, bytes.size())).begin());
  std::span<const std::byte> encoded = EncodeChunk(codecs, raw, bytes.size(), out);
  for (auto _ : state) {
    if (decode) {
      CHECK(DecodeChunk(codecs, encoded, bytes).ok(), "decode");
    } else {
      encoded = EncodeChunk(codecs, raw, bytes.size(), out);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
  state.counters["stored_per_byte"] =
      static_cast<double>(encoded.size()) / static_cast<double>(bytes.size());
}

constexpr auto kMs = benchmark::kMillisecond;

BENCHMARK(RawWrite)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeWrite, plain, std::nullopt)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeWrite, zstd1, 1)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeWrite, zstd3, 3)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(RawRead, warm, false)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeRead, warm, std::nullopt, false)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeRead, zstd1_warm, 1, false)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(RawRead, cold, true)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(NativeRead, cold, std::nullopt, true)->Unit(kMs)->UseRealTime();
BENCHMARK(Verify)->Unit(kMs)->UseRealTime();
BENCHMARK_CAPTURE(InMemory, crc32c, [](auto b) { benchmark::DoNotOptimize(Crc32c(b)); });
BENCHMARK_CAPTURE(InMemory, xxh3_128, [](auto b) { benchmark::DoNotOptimize(Xxh3Wide(b)); });
BENCHMARK_CAPTURE(InMemory, sha256, [](auto b) { benchmark::DoNotOptimize(Sha256Hex(b)); });
BENCHMARK_CAPTURE(Zstd, f32_level1, 1, false, false);
BENCHMARK_CAPTURE(Zstd, f32_level3, 3, false, false);
BENCHMARK_CAPTURE(Zstd, f32_level_minus5, -5, false, false);
BENCHMARK_CAPTURE(Zstd, f32_level1_decode, 1, false, true);
BENCHMARK_CAPTURE(Zstd, bf16_level1, 1, true, false);
BENCHMARK_CAPTURE(Zstd, bf16_level3, 3, true, false);
BENCHMARK_CAPTURE(Zstd, bf16_level1_decode, 1, true, true);

}  // namespace
}  // namespace ulmus::checkpoint
