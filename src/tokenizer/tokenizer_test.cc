#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tokenizer/byte_alphabet.h"
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

// From `tokenizers` 0.23.3, with special tokens taken as plain text.
TEST(Tokenizer, EncodesEvaluationStrings) {
  const Json goldens = Json::parse(*ReadFile(TestdataPath("evaluation_encodings.json")));
  ASSERT_EQ(goldens.size(), 305u);
  for (const Json& golden : goldens) {
    const auto text = golden.at("text").get<std::string>();
    EXPECT_EQ(EncodeOk(Dolma2(), text), golden.at("ids").get<std::vector<int32_t>>()) << text;
  }
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

// A small generator: the bytes only have to be varied and repeatable.
class Bytes {
 public:
  uint32_t Next() {
    return static_cast<uint32_t>((state_ = state_ * 6364136223846793005u + 1442695040888963407u) >>
                                 33);
  }

 private:
  uint64_t state_ = 1;
};

TEST(Tokenizer, RandomBytesComeBack) {
  Bytes bytes;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint32_t size = bytes.Next() % 300; size > 0; --size)
      text += static_cast<char>(round % 3 == 0 ? bytes.Next() % 256 : bytes.Next() % 97 + 32);
    for (const Tokenizer* tokenizer : {&Dolma2(), &Reference()})
      ASSERT_EQ(*tokenizer->Decode(EncodeOk(*tokenizer, text, {.special = round % 2 == 0})), text);
  }
}

TEST(Tokenizer, EveryUnicodeCharacterComesBack) {
  std::string block;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    AppendUtf8(c, block);
    if (c % 7 == 0) block += " x";
    if (c % 0x1000 != 0xFFF) continue;
    ASSERT_EQ(*Dolma2().Decode(EncodeOk(Dolma2(), block)), block) << c;
    block.clear();
  }
}

// Each of these makes a naive implementation quadratic, or a regular expression run out of stack.
TEST(Tokenizer, LongRunsTakeLinearTime) {
  constexpr size_t kSize = size_t{1} << 20;
  const std::string spaces(kSize, ' ');
  for (const std::string& text : {std::string(10 * kSize, 'a'), spaces, spaces + "x",
                                  std::string(kSize, '\n'), std::string(kSize, '\xFF')}) {
    const auto ids = EncodeOk(Dolma2(), text);
    ASSERT_TRUE(*Dolma2().Decode(ids) == text);
    EXPECT_LE(ids.size(), text.size());
  }
  EXPECT_EQ(EncodeOk(Dolma2(), std::string(kSize, '7')).size(), (kSize + 2) / 3);
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const std::string text = *ReadFile(TestdataPath("encodings.json"));
  const std::vector<int32_t> expected = EncodeOk(Dolma2(), text);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) wrong += *Dolma2().Encode(text) != expected;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(DecodeStream, HoldsBackCharactersThatAreNotComplete) {
  DecodeStream stream(Dolma2());
  std::string text;
  for (const int32_t id : EncodeOk(Dolma2(), "x \u5317\u4eac \U0001F642!")) {
    const std::string part = *stream.Add(id);
    EXPECT_EQ(ValidUtf8Prefix(part), part.size());
    text += part;
  }
  EXPECT_EQ(text + stream.Finish(), "x \u5317\u4eac \U0001F642!");
  EXPECT_EQ(*stream.Add(EncodeOk(Dolma2(), "\xE5")[0]), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(*stream.Add(EncodeOk(Dolma2(), "\xFF")[0]), "\xEF\xBF\xBD");
}

// Documents of the reference run's token files (the two shortest of each): what they decode to must
// encode to the same ids.
TEST(Tokenizer, ReproducesTheReferenceRunsDocuments) {
  const Json documents = Json::parse(*ReadFile(TestdataPath("reference_documents.json")));
  ASSERT_EQ(documents.size(), 18u);
  for (const Json& document : documents) {
    const auto ids = document.get<std::vector<int32_t>>();
    ASSERT_EQ(ids.back(), *Reference().eos_id());
    const auto body = std::vector<int32_t>(ids.begin(), ids.end() - 1);
    EXPECT_EQ(EncodeOk(Reference(), *Reference().Decode(body)), body);
  }
}

// --- Files

// A vocabulary of the bytes and "ab"; the rest of the file as in dolma2.
Json SmallFile() {
  Json file = Json::parse(*ReadFile(TestdataPath("reference_tokenizer.json")));
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), text);
    vocab[text] = byte;
  }
  vocab["ab"] = 256;
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = Json::array({"a b"});
  file["added_tokens"][0]["id"] = 300;  // ids may have holes
  file["added_tokens"][1]["id"] = 301;
  return file;
}

TEST(TokenizerFile, MergesMayBeTextsOrPairsAndIdsHaveHoles) {
  Json file = SmallFile();
  const auto texts = Tokenizer::FromJson(file.dump(), "f");
  file["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  const auto pairs = Tokenizer::FromJson(file.dump(4), "f");
  ASSERT_TRUE(texts.ok() && pairs.ok()) << texts.status().message() << pairs.status().message();
  EXPECT_THAT(EncodeOk(*texts, "abb"), ElementsAre(256, *texts->IdOf("b")));
  EXPECT_EQ(texts->fingerprint(), pairs->fingerprint());
  EXPECT_EQ(texts->vocab_size(), 302);
  EXPECT_EQ(texts->Decode(std::vector<int32_t>{280}).status().code(), StatusCode::kOutOfRange);
}

TEST(TokenizerFile, RefusesByNameWhatItDoesNotUnderstand) {
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Json split = SmallFile()["pre_tokenizer"]["pretokenizers"][0];
  const Case cases[] = {
      {"/normalizer", {{"type", "NFC"}}, "normalizer NFC"},
      {"/truncation", {{"max_length", 5}}, "truncation"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "TemplateProcessing"},
      {"/decoder", {{"type", "Metaspace"}}, "Metaspace"},
      {"/decoder", nullptr, "decoder"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer Whitespace"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "Removed"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext", "MergedWithNext"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "a\\h", "`\\h`"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", "is wrong at byte"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "^a", "`^`"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "add_prefix_space"},
      {"/model/type", "Unigram", "model Unigram"},
      {"/model/byte_fallback", true, "byte_fallback"},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/novelty", 1, "model.novelty"},
      {"/added_tokens/0/lstrip", true, "lstrip"},
      {"/added_tokens/0/single_word", true, "single_word"},
      {"/added_tokens/1/id", 300, "taken by another"},
      {"/added_tokens/1/id", -1, "has id -1"},
      {"/added_tokens/1/id", 5'000'000, "has id 5000000"},
      {"/added_tokens/1/id", 256, "in added_tokens"},
      {"/model/vocab/ab", 255, "id 255 is given to"},
      {"/model/vocab/ab", "x", "no integer id"},
      {"/model/vocab", 3, "model.vocab"},
      {"/model/merges", Json::array({"a c"}), "vocab has no token `ac`"},
      {"/model/merges", Json::array({"ab"}), "two parts"},
      {"/model/merges", Json::array({"a b", "a b"}), "are the same"},
      {"/model/merges", Json::array({Json::array({"a"})}), "1 parts"},
      {"/model/merges", 3, "model.merges"},
  };
  ASSERT_TRUE(Tokenizer::FromJson(SmallFile().dump(), "f").ok());
  for (const Case& c : cases) {
    Json file = SmallFile();
    file[Json::json_pointer(c.pointer)] = c.value;
    const Status status = Tokenizer::FromJson(file.dump(), "f.json").status();
    EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument ||
                status.code() == StatusCode::kDataLoss)
        << c.pointer << " " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.pointer << " " << c.value;
    EXPECT_THAT(status.message(), HasSubstr("f.json: ")) << c.pointer;
  }
  for (const char* text : {"", "[]", "{", "{}", "nul"})
    EXPECT_FALSE(Tokenizer::FromJson(text, "f").ok()) << text;
  EXPECT_FALSE(Tokenizer::FromJson(std::string(1000, '['), "f").ok());
}

TEST(Tokenizer, DecodeOfAnUnknownIdIsAnError) {
  for (const int32_t id : {-1, 100278, INT32_MAX}) {
    EXPECT_EQ(Dolma2().Decode(std::vector<int32_t>{id}).status().code(), StatusCode::kOutOfRange);
  }
}

}  // namespace
}  // namespace ulmus::tokenizer
