#include "data/mix_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus::data {
namespace {

using testing::HasSubstr;

TEST(MixList, ReadsEntriesInOrder) {
  const auto entries = ParseMixList(
      "# OLMo mix\n"
      "cc, preprocessed/{TOKENIZER}/part-0.npy \r\n"
      "\n"
      "  #wiki,left/out\n"
      "wiki,b/x,y.npy",
      "mix.txt");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_EQ(*entries,
            (std::vector<MixEntry>{{"cc", "preprocessed/allenai/dolma3-tokenizer/part-0.npy"},
                                   {"wiki", "b/x,y.npy"}}));
}

TEST(MixList, NamesTheLineThatIsWrong) {
  const struct {
    std::string_view text;
    const char* message;
  } cases[] = {
      {"a,b\nnothing here\n", "mix.txt:2: expected `label,path`"},
      {",b\n", "mix.txt:1: the label is empty"},
      {"a, \n", "mix.txt:1: the path is empty"},
      {"a,{tokenizer}/x\n", "mix.txt:1: unknown placeholder"},
      {std::string_view("a,b\0c\n", 6), "NUL"},
      {"# nothing\n", "mix.txt: no file in the mix"},
      {"", "mix.txt: no file in the mix"},
  };
  for (const auto& c : cases) {
    const auto entries = ParseMixList(c.text, "mix.txt");
    ASSERT_FALSE(entries.ok()) << c.message;
    EXPECT_EQ(entries.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(entries.status().message(), HasSubstr(c.message));
  }
}

TEST(MixList, MovesPathsByTheLongestPrefix) {
  const std::vector<PathRemap> remaps = {*ParsePathRemap("s3://bucket/=/mnt/"),
                                         *ParsePathRemap("s3://bucket/cc/=/fast/cc/")};
  EXPECT_EQ(*LocalPath("s3://bucket/wiki/a", "/base", remaps), Path("/mnt/wiki/a"));
  EXPECT_EQ(*LocalPath("s3://bucket/cc/a", "/base", remaps), Path("/fast/cc/a"));
  EXPECT_EQ(*LocalPath("rel/a", "/base", remaps), Path("/base/rel/a"));
  EXPECT_EQ(*LocalPath("/abs/a", "/base", remaps), Path("/abs/a"));
  EXPECT_THAT(LocalPath("gs://other/a", "", remaps).status().message(),
              HasSubstr("gs://other=/local/folder"));
  EXPECT_FALSE(ParsePathRemap("nothing").ok());
}

}  // namespace
}  // namespace ulmus::data
