#include "data/sniff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;

constexpr TokenizerIds kDolma = {};
constexpr TokenizerIds kSmall = {.vocab_size = 50280, .eos = 0, .pad = 1};
constexpr TokenizerIds kBytes = {.vocab_size = 256, .eos = 0, .pad = 1};

// Ids as text has them, small ones far more often, with an EOS every few hundred tokens.
std::vector<int64_t> Text(int64_t count, const TokenizerIds& ids) {
  std::mt19937 random(7);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const double u = static_cast<double>(random() % 100000) / 100000;
    tokens.push_back(1 + static_cast<int64_t>(u * u * static_cast<double>(ids.vocab_size - 1)));
    if (i % 300 == 299) tokens.back() = ids.eos;
  }
  return tokens;
}

template <class Element>
Status CheckAs(DType dtype, const std::vector<int64_t>& tokens, const TokenizerIds& ids) {
  const TempDir dir;
  return CheckTokens(WriteTokens<Element>(dir.path() / "a.npy", tokens), dtype, ids);
}

TEST(Sniff, TakesTheRightWidth) {
  EXPECT_TRUE(CheckAs<uint32_t>(DType::kU32, Text(300'000, kDolma), kDolma).ok());
  EXPECT_TRUE(CheckAs<uint32_t>(DType::kU32, Text(500, kDolma), kDolma).ok());
  EXPECT_TRUE(CheckAs<uint16_t>(DType::kU16, Text(5'000, kSmall), kSmall).ok());
  EXPECT_TRUE(CheckAs<uint64_t>(DType::kU64, Text(5'000, kDolma), kDolma).ok());
  EXPECT_TRUE(CheckAs<uint8_t>(DType::kU8, Text(5'000, kBytes), kBytes).ok());
}

// B16 of the public cases, and every other pair of widths.
TEST(Sniff, RefusesTheWrongWidthAndNamesTheRightOne) {
  const struct {
    Status status;
    const char* message;
  } cases[] = {
      {CheckAs<uint16_t>(DType::kU32, Text(3'001, kSmall), kSmall), "not a whole number of u32"},
      {CheckAs<uint16_t>(DType::kU32, Text(3'000, kSmall), kSmall), "outside the vocabulary"},
      {CheckAs<uint16_t>(DType::kU64, Text(3'000, kSmall), kSmall), "outside the vocabulary"},
      {CheckAs<uint16_t>(DType::kU8, Text(3'000, kSmall), kSmall), "high half"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(c.status.message(), HasSubstr(c.message));
    EXPECT_THAT(c.status.message(), HasSubstr("looks like u16"));
  }
  for (DType dtype : {DType::kU8, DType::kU16}) {
    for (const TokenizerIds& ids : {kDolma, kSmall}) {
      const Status status = CheckAs<uint32_t>(dtype, Text(3'000, ids), ids);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr("looks like u32"));
    }
  }
  EXPECT_THAT(CheckAs<uint32_t>(DType::kU64, Text(3'000, kDolma), kDolma).message(),
              HasSubstr("looks like u32"));
  EXPECT_THAT(CheckAs<uint64_t>(DType::kU32, Text(3'000, kDolma), kDolma).message(),
              HasSubstr("looks like u64"));
  EXPECT_THAT(CheckAs<uint8_t>(DType::kU16, Text(3'000, kBytes), kBytes).message(),
              HasSubstr("looks like u8"));
}

// A vocabulary that 16 bits do not hold, as a corpus whose option got lost.
TEST(Sniff, Names16BitsForALargeVocabulary) {
  for (int64_t count : {3'000, 3'001}) {
    const Status status = CheckAs<uint16_t>(DType::kU32, Text(count, kSmall), kDolma);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("looks like u16"));
  }
}

TEST(Sniff, RefusesAnotherTokenizersIds) {
  const Status status = CheckAs<uint32_t>(DType::kU32, Text(3'000, kDolma), kSmall);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("another tokenizer"));
}

TEST(Sniff, JudgesNothingFromTooLittle) {
  EXPECT_TRUE(CheckAs<uint32_t>(DType::kU32, {5, 0, 6, 0}, kDolma).ok());
  EXPECT_TRUE(CheckAs<uint32_t>(DType::kU32, {}, kDolma).ok());
  EXPECT_TRUE(CheckAs<uint32_t>(DType::kU32, std::vector<int64_t>(4096, 0), kDolma).ok());
}

TEST(Sniff, WarnsAboutOddRatesOfEos) {
  const TempDir dir;
  std::vector<int64_t> none = Text(100'000, kDolma);
  std::replace(none.begin(), none.end(), kDolma.eos, int64_t{5});
  const auto few = SniffTokens(WriteTokens<uint32_t>(dir.path() / "a", none), DType::kU32, kDolma);
  ASSERT_TRUE(few.ok());
  ASSERT_EQ(few->warnings.size(), 1u);
  EXPECT_THAT(few->warnings[0], HasSubstr("no EOS among"));
  std::vector<int64_t> many = Text(1'000, kDolma);
  std::fill_n(many.begin(), 500, kDolma.eos);
  const auto most = SniffTokens(WriteTokens<uint32_t>(dir.path() / "b", many), DType::kU32, kDolma);
  ASSERT_EQ(most->warnings.size(), 1u);
  EXPECT_THAT(most->warnings[0], HasSubstr("are EOS"));
}

}  // namespace
}  // namespace ulmus::data
