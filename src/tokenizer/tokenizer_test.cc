#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/thread.h"
#include "tokenizer/testing.h"
#include "tokenizer/utf8.h"

namespace ulmus::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<int32_t> EncodeOk(const Tokenizer& tokenizer, std::string_view text,
                              EncodeOptions options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

TEST(Tokenizer, EncodesTheGoldens) {
  const Json goldens = Json::parse(*ReadFile(TestdataPath("encodings.json")));
  ASSERT_GT(goldens.size(), 20u);
  for (const Json& golden : goldens) {
    const auto text = golden.at("text").get<std::string>();
    EXPECT_EQ(EncodeOk(Dolma2(), text, {.special = true}),
              golden.at("ids").get<std::vector<int32_t>>())
        << text;
  }
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  EXPECT_EQ(Dolma2().vocab_size(), 100278);
  EXPECT_EQ(Dolma2().eos_id(), 100257);
  EXPECT_EQ(Dolma2().pad_id(), 100277);
  EXPECT_TRUE(Dolma2().IsSpecial(100257));
  EXPECT_FALSE(Dolma2().IsSpecial(100261));
  EXPECT_EQ(*Dolma2().IdOf("<|im_start|>"), 100264);
  EXPECT_EQ(*Dolma2().IdOf(" A"), 362);
  EXPECT_THAT(Dolma2().IdOf("<|im_strat|>").status().message(), HasSubstr("`<|im_start|>`"));
}

TEST(Tokenizer, UntrustedTextYieldsNoSpecialToken) {
  std::string text;
  for (const char* token : {"<|endoftext|>", "<|pad|>", "<|im_start|>", "<|fim_prefix|>"})
    text += std::string(token) + " x" + token + token;
  for (const int32_t id : EncodeOk(Dolma2(), text)) EXPECT_FALSE(Dolma2().IsSpecial(id)) << id;
  EXPECT_EQ(*Dolma2().Decode(EncodeOk(Dolma2(), text)), text);
}

TEST(Tokenizer, AddedTokensThatAreNotSpecialAlwaysCount) {
  EXPECT_THAT(EncodeOk(Dolma2(), "|||IP_ADDRESS|||"), ElementsAre(100263));
  EXPECT_THAT(EncodeOk(Dolma2(), "<|extra_id_10|>"), ElementsAre(100275));
}

TEST(Tokenizer, BytesThatAreNotUtf8ComeBack) {
  for (const std::string_view text :
       {"\x80", "a\xFFz", "\xC3", "ab\xE5\x8C", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\x80 x"}) {
    EXPECT_EQ(*Dolma2().Decode(EncodeOk(Dolma2(), text)), text);
  }
  const std::string nul("a\0b", 3);
  EXPECT_EQ(*Dolma2().Decode(EncodeOk(Dolma2(), nul)), nul);
}

TEST(Tokenizer, DecodeOfAnUnknownIdIsAnError) {
  for (const int32_t id : {-1, 100278, INT32_MAX}) {
    EXPECT_EQ(Dolma2().Decode(std::vector<int32_t>{id}).status().code(), StatusCode::kOutOfRange);
  }
}

}  // namespace
}  // namespace ulmus::tokenizer
