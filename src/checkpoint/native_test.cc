#include "checkpoint/native.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/random.h"
#include "checkpoint/native_orbax.h"
#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr NativeWriterOptions kNoSync = {.sync = false};

// Bytes without a pattern, the same for the same seed.
std::vector<std::byte> Noise(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t state = seed * 2 + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

struct Tensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

Tensor MakeTensor(std::string name, DType dtype, Shape shape) {
  const TensorType type{dtype, std::move(shape)};
  Tensor tensor{.info = {std::move(name), type},
                .bytes = Noise(static_cast<size_t>(type.size_bytes()), Xxh3(type.ToString()))};
  if (dtype == DType::kBool)
    for (std::byte& byte : tensor.bytes) byte &= std::byte{1};
  return tensor;
}

// Every dtype, odd shapes, and one array with many inner chunks.
std::vector<Tensor> OddTensors() {
  std::vector<Tensor> tensors;
  for (const DType dtype : kAllDTypes)
    tensors.push_back(MakeTensor(fmt::format("type.{}", Name(dtype)), dtype, {3, 5}));
  tensors.push_back(MakeTensor("scalar", DType::kF32, Shape()));
  tensors.push_back(MakeTensor("empty", DType::kF32, {0, 5}));
  tensors.push_back(MakeTensor("vector", DType::kBF16, {4097}));
  tensors.push_back(MakeTensor("thin", DType::kI64, {7, 1, 3}));
  tensors.push_back(MakeTensor("model.embed_tokens.weight", DType::kF32, {1031, 2048}));
  return tensors;
}

std::vector<TensorInfo> Infos(const std::vector<Tensor>& tensors) {
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : tensors) infos.push_back(tensor.info);
  return infos;
}

Status WriteAll(NativeWriter& writer, const std::vector<Tensor>& tensors,
                size_t piece_bytes = 100'000) {
  for (const Tensor& tensor : tensors) {
    TRY(writer.Begin(tensor.info));
    for (std::span<const std::byte> rest = tensor.bytes; !rest.empty();) {
      const size_t piece = std::min(piece_bytes, rest.size());
      TRY(writer.Append(rest.first(piece)));
      rest = rest.subspan(piece);
    }
  }
  return Status();
}

Status Save(const Path& dst, const std::vector<Tensor>& tensors,
            NativeWriterOptions options = kNoSync) {
  const auto writer = TRY(NativeWriter::Create(dst, Infos(tensors), options));
  TRY(WriteAll(*writer, tensors));
  TRY(writer->SetTrainState(R"({"step": 7})"));
  TRY(writer->AddSideFile("config.json", "{}\n"));
  return writer->Commit();
}

std::vector<std::byte> ReadTensor(const NativeReader& reader, std::string_view name) {
  const int64_t index = *FindTensor(reader, name);
  std::vector<std::byte> bytes(
      static_cast<size_t>(reader.tensors()[static_cast<size_t>(index)].type.size_bytes()));
  const Status status = reader.Read(index, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return bytes;
}

void ExpectEqual(const Path& path, const std::vector<Tensor>& tensors) {
  const auto reader = NativeReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  ASSERT_EQ((*reader)->tensors().size(), tensors.size());
  for (const Tensor& tensor : tensors) {
    const std::optional<int64_t> index = FindTensor(**reader, tensor.info.name);
    ASSERT_TRUE(index.has_value()) << tensor.info.name;
    EXPECT_EQ((*reader)->tensors()[static_cast<size_t>(*index)], tensor.info);
    EXPECT_EQ(ReadTensor(**reader, tensor.info.name), tensor.bytes) << tensor.info.name;
  }
}

TEST(Native, RoundTripOfEveryDtypeAndOddShape) {
  for (const std::optional<int> level : {std::optional<int>(), std::optional<int>(1)}) {
    const TempDir folder;
    const std::vector<Tensor> tensors = OddTensors();
    const Path path = folder.path() / "step-00000007";
    ASSERT_TRUE(Save(path, tensors, {.step = 7, .zstd_level = level, .sync = false}).ok());
    ExpectEqual(path, tensors);
    const auto reader = NativeReader::Open(path);
    EXPECT_EQ((*reader)->step(), 7);
    EXPECT_EQ(*(*reader)->LoadTrainState(), R"({"step": 7})");
    EXPECT_THAT((*reader)->SideFiles(), ElementsAre("config.json"));
    EXPECT_EQ(*(*reader)->LoadSideFile("config.json"), "{}\n");
    EXPECT_EQ((*reader)->LoadSideFile("other.json").status().code(), StatusCode::kNotFound);
    EXPECT_THAT(VerifyCheckpoint(path)->damaged, IsEmpty());
    EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("step-00000007"));
  }
}

TEST(Native, AnyRangeAndBlockEqualsTheWholeTensor) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  const Tensor tensor = MakeTensor("t", DType::kF32, {5, 300, 1000});  // rows of 1.2 MB
  ASSERT_TRUE(Save(path, {tensor}).ok());
  const auto reader = NativeReader::Open(path);
  ASSERT_TRUE(reader.ok());
  EXPECT_GT((*reader)->metadata(0).chunk_shape.num_elements(),
            (*reader)->metadata(0).inner_shape().num_elements());
  HostTensor whole(tensor.info.type);
  std::ranges::copy(tensor.bytes, whole.bytes().begin());
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                                             {1, 999},
                                                                             {999, 2},
                                                                             {299'999, 2},
                                                                             {123'456, 1'000'000},
                                                                             {1'499'999, 1},
                                                                             {7, 0}}) {
    std::vector<std::byte> out(static_cast<size_t>(count * 4));
    ASSERT_TRUE((*reader)->Read(0, first, out).ok());
    EXPECT_TRUE(std::ranges::equal(
        out, std::span(tensor.bytes).subspan(static_cast<size_t>(first * 4), out.size())))
        << first << " " << count;
  }
  struct Case {
    Dims offsets;
    Shape block;
  };
  for (const Case& c : {Case{{0, 0, 0}, {5, 300, 1000}}, Case{{1, 299, 3}, {4, 1, 997}},
                        Case{{0, 100, 500}, {5, 7, 2}}, Case{{4, 0, 0}, {1, 300, 1000}}}) {
    HostTensor block(TensorType{DType::kF32, c.block});
    ASSERT_TRUE((*reader)->ReadBlock(0, c.offsets, c.block, block.bytes()).ok());
    EXPECT_TRUE(std::ranges::equal(block.bytes(), CopyBlock(whole, c.offsets, c.block).bytes()))
        << c.block.ToString();
  }
}

TEST(Native, SeveralWritersOfOneTensorGiveItsValues) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  const Tensor tensor = MakeTensor("t", DType::kF32, {10, 6});
  HostTensor whole(tensor.info.type);
  std::ranges::copy(tensor.bytes, whole.bytes().begin());
  const auto writer = NativeWriter::Create(path, {tensor.info}, kNoSync);
  ASSERT_TRUE(writer.ok());
  const Shape chunk_shape{4, 2};  // the last row of chunks is cut
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      const auto stream = (*writer)->BeginChunk("t", chunk_shape, {row, column});
      ASSERT_TRUE(stream.ok()) << stream.status().ToString();
      const Shape clipped{std::min<int64_t>(4, 10 - 4 * row), 2};
      const HostTensor block = CopyBlock(whole, {4 * row, 2 * column}, clipped);
      ASSERT_TRUE((*stream)->Append(block.bytes()).ok());
    }
  }
  EXPECT_EQ((*writer)->BeginChunk("t", chunk_shape, {0, 0}).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE((*writer)->Commit().ok());
  ExpectEqual(path, {tensor});
}

TEST(Native, MissingTensorOrBytesAreNotCommitted) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  const Tensor a = MakeTensor("a", DType::kF32, {4});
  const Tensor b = MakeTensor("b", DType::kF32, {4});
  {
    const auto writer = NativeWriter::Create(path, {a.info, b.info}, kNoSync);
    ASSERT_TRUE(WriteAll(**writer, {a}).ok());
    const Status status = (*writer)->Commit();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("b"));
  }
  {
    const auto writer = NativeWriter::Create(path, {a.info}, kNoSync);
    ASSERT_TRUE((*writer)->Begin(a.info).ok());
    ASSERT_TRUE((*writer)->Append(std::span(a.bytes).first(12)).ok());
    EXPECT_THAT((*writer)->Commit().message(), HasSubstr("4 bytes are missing"));
  }
  EXPECT_THAT(*ListDirectory(folder.path()), IsEmpty());
}

TEST(Native, ExistingDirectoryIsKeptUnlessItMayBeReplaced) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  const Tensor a = MakeTensor("a", DType::kF32, {4});
  const Tensor b = MakeTensor("a", DType::kF32, {5});
  ASSERT_TRUE(Save(path, {a}).ok());
  EXPECT_EQ(Save(path, {b}).code(), StatusCode::kAlreadyExists);
  ExpectEqual(path, {a});
  ASSERT_TRUE(Save(path, {b}, {.overwrite = true, .sync = false}).ok());
  ExpectEqual(path, {b});
  const Path other = folder.path() / "thesis";
  ASSERT_TRUE(CreateDirectories(other).ok());
  ASSERT_TRUE(WriteFileAtomic(other / "chapter1.tex", "x").ok());
  EXPECT_EQ(Save(other, {b}, {.overwrite = true, .sync = false}).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("c", "thesis"));
}

TEST(Native, SameContentGivesSameBytes) {
  const TempDir folder;
  const std::vector<Tensor> tensors = OddTensors();
  for (const char* name : {"a", "b"})
    ASSERT_TRUE(Save(folder.path() / name, tensors, {.zstd_level = 1, .sync = false}).ok());
  EXPECT_EQ(*ReadFile(folder.path() / "a" / kManifestName),
            *ReadFile(folder.path() / "b" / kManifestName));
}

TEST(Native, NamesThatWouldCollideOrEscapeAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "../x", "manifest.json", "hf", "_METADATA", "a\nb",
                           "zarr.json", "train_state.json", "it's", "\xff"}) {
    EXPECT_EQ(CheckTensorName(name).code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(CheckTensorName("exp_avg.model.layers.0.mlp.up_proj.weight").ok());
}

}  // namespace
}  // namespace ulmus::checkpoint
