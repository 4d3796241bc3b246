#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus {
namespace {

using ::testing::HasSubstr;

TEST(Json, ReadsOneValue) {
  EXPECT_EQ((*ParseJson(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})"))["b"][1]["a"], 2);
  EXPECT_EQ(*ParseJson(" 3 "), 3);
  EXPECT_EQ(ParseOrderedJson(R"({"b":1,"a":2})")->dump(), R"({"b":1,"a":2})");
}

TEST(Json, AKeyTwiceInOneObjectIsRefused) {
  for (const char* text : {R"({"a":1,"b":2,"a":3})", R"([{"x":{"a":1,"a":1}}])",
                           R"({"a":1,"\u0061":2})", R"({"a":[{"c":1}],"b":2,"a":[]})"})
    EXPECT_THAT(ParseJson(text).status().message(), HasSubstr("\"a\" stands twice")) << text;
}

TEST(Json, DepthAndSizeAreBounded) {
  EXPECT_THAT(ParseJson(std::string(1'000'000, '[')).status().message(), HasSubstr("deeper"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(ParseJson(objects).status().message(), HasSubstr("deeper"));
  EXPECT_TRUE(ParseJson("[[1],[2]]", {.max_depth = 2}).ok());
  EXPECT_FALSE(ParseJson("[[1],[[2]]]", {.max_depth = 2}).ok());
  EXPECT_TRUE(ParseJson("[1,2]", {.max_bytes = 5}).ok());
  EXPECT_THAT(ParseJson("[1,2] ", {.max_bytes = 5}).status().message(),
              HasSubstr("6 bytes of JSON, more than the limit of 5"));
}

TEST(Json, WhatIsNoJsonIsRefusedWithItsPlace) {
  for (const std::string text :
       {"", " ", "{", "[1,]", "{\"a\" 1}", "nul", "[1] 2", "NaN", "[1e999]", "\"\xff\"", "'a'",
        "// a\n1", "{\"a\":1}\xef\xbb\xbf", "\"\\ud800\"", "01"}) {
    const Status status = ParseJson(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ParseOrderedJson(text).status().message(), status.message());
  }
  EXPECT_FALSE(ParseJson(std::string_view("1\0", 2)).ok());
  EXPECT_THAT(ParseJson("{\"a\":\n x}").status().message(), HasSubstr("line 2, column 2"));
}

TEST(Json, ExcerptsAreShortAndPrintable) {
  EXPECT_EQ(JsonExcerpt(Json("\x1b[31m\xff")), "\"\\u001b[31m\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonExcerpt(Json(std::string(100, 'x')), 5), "\"xxxx...");
}

}  // namespace
}  // namespace ulmus
