#include "data/token_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;

std::vector<int32_t> ReadAll(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
  const Status status = file.Read(0, tokens);
  EXPECT_TRUE(status.ok()) << status.message();
  return tokens;
}

template <class Element>
void ExpectReads(DType dtype) {
  const TempDir dir;
  const Path path = WriteTokens<Element>(dir.path() / "a.npy", Counting(1, 120));
  for (bool map : {true, false}) {
    const auto file = TokenFile::Open(path, {.dtype = dtype, .vocab_size = 121, .map = map});
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ((*file)->num_tokens(), 120);
    std::vector<int32_t> tokens(3);
    ASSERT_TRUE((*file)->Read(117, tokens).ok());
    EXPECT_EQ(tokens, (std::vector<int32_t>{118, 119, 120}));
    EXPECT_EQ(ReadAll(**file).front(), 1);
  }
}

TEST(TokenFile, ReadsEveryWidth) {
  ExpectReads<uint8_t>(DType::kU8);
  ExpectReads<uint16_t>(DType::kU16);
  ExpectReads<uint32_t>(DType::kU32);
  ExpectReads<uint64_t>(DType::kU64);
  ExpectReads<int32_t>(DType::kI32);
}

TEST(TokenFile, TakesTheDtypeOfARealNpy) {
  const TempDir dir;
  const uint16_t data[] = {7, 8, 65535};
  const std::string_view bytes(reinterpret_cast<const char*>(data), sizeof data);
  const auto file = TokenFile::Open(WriteNpy(dir.path() / "a.npy", DType::kU16, 3, bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->dtype(), DType::kU16);
  EXPECT_EQ(ReadAll(**file), (std::vector<int32_t>{7, 8, 65535}));
}

TEST(TokenFile, RefusesSizesThatDoNotFit) {
  const TempDir dir;
  const Path odd = WriteTokens<uint8_t>(dir.path() / "odd", Counting(0, 7));
  EXPECT_THAT(TokenFile::Open(odd).status().message(), HasSubstr("7 bytes is not a whole number"));
  EXPECT_EQ(TokenFile::Open(odd).status().code(), StatusCode::kDataLoss);
  const Path cut = WriteNpy(dir.path() / "cut.npy", DType::kU32, 3, "12345678");
  EXPECT_THAT(TokenFile::Open(cut).status().message(), HasSubstr("announces 3 elements"));
  const Path huge = WriteNpy(dir.path() / "huge.npy", DType::kU64, int64_t{1} << 62, "12345678");
  EXPECT_THAT(TokenFile::Open(huge).status().message(), HasSubstr("8 bytes follow"));
  EXPECT_EQ(TokenFile::Open(dir.path() / "none").status().code(), StatusCode::kNotFound);
}

TEST(TokenFile, NamesTheFirstIdOutsideTheVocabulary) {
  const TempDir dir;
  std::vector<int64_t> tokens(5000, 3);
  tokens[4321] = 100278;
  const Path path = WriteTokens<uint32_t>(dir.path() / "a", tokens);
  const auto file = TokenFile::Open(path, {.vocab_size = 100278});
  ASSERT_TRUE(file.ok());
  std::vector<int32_t> out(4000);
  const Status status = (*file)->Read(1000, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("token 4321 has id 100278"));
  EXPECT_TRUE((*file)->Read(0, out).ok());
}

TEST(TokenFile, RefusesIdsBeyondInt32WithoutAVocabulary) {
  const TempDir dir;
  const Path narrow = WriteTokens<uint32_t>(dir.path() / "a", {1, int64_t{1} << 31});
  const Path wide = WriteTokens<uint64_t>(dir.path() / "b", {1, int64_t{1} << 40});
  const Path negative = WriteTokens<int32_t>(dir.path() / "c", {1, -1});
  std::vector<int32_t> out(2);
  EXPECT_FALSE((*TokenFile::Open(narrow))->Read(0, out).ok());
  EXPECT_FALSE((*TokenFile::Open(wide, {.dtype = DType::kU64}))->Read(0, out).ok());
  EXPECT_FALSE((*TokenFile::Open(negative, {.dtype = DType::kI32}))->Read(0, out).ok());
}

TEST(TokenFile, NoticesAReplacedFile) {
  const TempDir dir;
  const Path path = WriteTokens<uint32_t>(dir.path() / "a", {1, 2});
  const auto file = TokenFile::Open(path);
  WriteTokens<uint32_t>(path, {3, 4});  // the same size
  std::vector<int32_t> out(2);
  const Status status = (*file)->Read(0, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("replaced"));
}

TEST(TokenFile, ReadsBeyond32BitsOfASparseFile) {
  const TempDir dir;
  const Path path = dir.path() / "sparse";
  const int64_t num_tokens = (int64_t{1} << 32) + 100;
  const FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT, 0644));
  const uint32_t token = 77;
  ASSERT_EQ(pwrite(fd.get(), &token, 4, (num_tokens - 1) * 4), 4);
  const auto file = TokenFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->num_tokens(), num_tokens);
  std::vector<int32_t> out(2);
  ASSERT_TRUE((*file)->Read(num_tokens - 2, out).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{0, 77}));
}

}  // namespace
}  // namespace ulmus::data
