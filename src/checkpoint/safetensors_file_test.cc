#include "checkpoint/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/hash.h"  // AsBytes
#include "checkpoint/testing/memory_source.h"

namespace ulmus::checkpoint {
namespace {

using testing::HasSubstr;

Path TestData(std::string_view name) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  return Path(root != nullptr ? root : ".") / "src/checkpoint/testdata" / name;
}

template <class T>
std::vector<T> ValuesOf(const TensorSource& source, std::string_view name) {
  const int64_t index = FindTensor(source, name).value();
  const TensorInfo& info = source.tensors()[static_cast<size_t>(index)];
  EXPECT_EQ(info.type.dtype, kDTypeOf<T>);
  std::vector<T> values(static_cast<size_t>(info.type.shape.num_elements()));
  EXPECT_TRUE(source.Read(index, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

// Eight bytes of length, then `header`, then `data_bytes` zeros.
std::string FileBytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

TEST(SafetensorsFile, ReadsWhatThePublicWriterWrote) {
  const auto source = SafetensorsSource::Open(TestData("public_writer.safetensors"));
  ASSERT_TRUE(source.ok()) << source.status().message();
  const TensorSource& file = **source;
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors()) names.push_back(info.name);
  EXPECT_THAT(
      names, testing::ElementsAre("a", "b.weight", "empty", "half", "ids", "mask", "na\xc3\xafve"));
  EXPECT_THAT(ValuesOf<int64_t>(file, "ids"), testing::ElementsAre(7, -1));
  EXPECT_THAT(ValuesOf<float>(file, "b.weight"), testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ValuesOf<BF16>(file, "a"), testing::ElementsAre(BF16(1.5f), BF16(-2.0f)));
  EXPECT_THAT(ValuesOf<F16>(file, "half"), testing::ElementsAre(F16(3.25f)));
  EXPECT_THAT(ValuesOf<int32_t>(file, "na\xc3\xafve"), testing::ElementsAre(5));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "empty"), testing::IsEmpty());
  float element = 0;
  ASSERT_TRUE(file.Read(1, 4, std::as_writable_bytes(std::span(&element, 1))).ok());
  EXPECT_EQ(element, 4);
}

TEST(SafetensorsFile, WritingWhatWasReadGivesTheSameBytes) {
  const Path path = TestData("public_writer.safetensors");
  const auto source = SafetensorsSource::Open(path);
  ASSERT_TRUE(source.ok());
  const TempDir temp;
  ASSERT_TRUE(WriteSafetensors(temp.path() / "copy", **source).ok());
  EXPECT_EQ(ReadFile(temp.path() / "copy").value(), ReadFile(path).value());
}

TEST(SafetensorsFile, StorageOrderIsThatOfTheBytes) {
  const auto source = SafetensorsSource::Open(TestData("public_writer.safetensors"));
  ASSERT_TRUE(source.ok());
  std::vector<std::string> names;
  for (int64_t i : (*source)->StorageOrder())
    names.push_back((*source)->tensors()[static_cast<size_t>(i)].name);
  EXPECT_THAT(
      names, testing::ElementsAre("ids", "b.weight", "na\xc3\xafve", "a", "half", "empty", "mask"));
}

TEST(SafetensorsFile, RefusesBrokenFiles) {
  const std::string header = R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  std::string bomb = FileBytes(header, 4);
  std::memcpy(bomb.data(), "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  std::string large = FileBytes(header, 4);
  const uint64_t length = 100'000'001;
  std::memcpy(large.data(), &length, 8);
  std::string longer = FileBytes(header, 4);
  const uint64_t whole = 99'999'999;
  std::memcpy(longer.data(), &whole, 8);
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {std::string(8, '\0'), "does not start with '{'"},
      {bomb, "header of 18446744073709551615 bytes"},
      {large, "more than the 100000000 allowed"},
      {longer, "cut short"},
      {FileBytes(header, 3), "cut short"},
      {FileBytes(header, 5), "belong to no tensor"},
      {FileBytes(header, 4).substr(0, 30), "cut short"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "more than the"},
  };
  const TempDir temp;
  for (const auto& c : cases) {
    ASSERT_TRUE(WriteFileAtomic(temp.path() / "f", c.bytes).ok());
    const auto file = SafetensorsFile::Open(temp.path() / "f");
    ASSERT_FALSE(file.ok()) << c.message;
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(file.status().message(), testing::AllOf(HasSubstr(c.message), HasSubstr("/f: ")));
  }
}

TEST(SafetensorsFile, PipesAndFoldersAreRefusedWithoutWaiting) {
  const TempDir temp;
  ASSERT_EQ(mkfifo((temp.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsFile::Open(temp.path() / "pipe").status().message(),
              HasSubstr("not a regular file"));
  EXPECT_FALSE(SafetensorsFile::Open(temp.path()).ok());
  EXPECT_EQ(SafetensorsFile::Open(temp.path() / "absent").status().code(), StatusCode::kNotFound);
}

TEST(SafetensorsFile, AFileThatShrinksIsAnError) {
  const TempDir temp;
  const Path path = temp.path() / "f";
  ASSERT_TRUE(
      WriteFileAtomic(
          path, FileBytes(R"({"t":{"dtype":"U8","shape":[4096],"data_offsets":[0,4096]}})", 4096))
          .ok());
  const auto source = SafetensorsSource::Open(path);
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);
  std::vector<std::byte> out(4096);
  EXPECT_EQ((*source)->Read(0, 0, out).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ulmus::checkpoint
