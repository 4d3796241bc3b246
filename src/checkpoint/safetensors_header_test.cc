#include "checkpoint/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus::checkpoint {
namespace {

using testing::HasSubstr;

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto header = ParseSafetensorsHeader(
      "{" + Tensor("b", "F32", "[2,3]", "[4,28]") + "," + Tensor("a", "BF16", "[2]", "[0,4]") +
          R"(,"__metadata__":{"format":"pt"},)" + Tensor("none", "U8", "[0,7]", "[4,4]") + "}   ",
      28);
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].info, (TensorInfo{"a", {DType::kBF16, {2}}}));
  EXPECT_EQ(header->tensors[1].info.name, "none");
  EXPECT_EQ(header->tensors[2].info, (TensorInfo{"b", {DType::kF32, {2, 3}}}));
  EXPECT_EQ(header->metadata.front(), (std::pair<std::string, std::string>("format", "pt")));
}

TEST(SafetensorsHeader, KnowsEveryElementType) {
  for (DType dtype : kAllDTypes) {
    const int64_t size = SizeBytes(dtype);
    const auto header = ParseSafetensorsHeader(
        "{" + Tensor("t", std::string(SafetensorsName(dtype)), "[1]", fmt::format("[0,{}]", size)) +
            "}",
        size);
    ASSERT_TRUE(header.ok()) << Name(dtype);
    EXPECT_EQ(header->tensors[0].info.type.dtype, dtype);
  }
}

struct Hostile {
  const char* what;
  std::string text;
  const char* message;
  int64_t data_bytes = 8;
};

std::vector<Hostile> HostileHeaders() {
  const std::string good = Tensor("t", "F32", "[2]", "[0,8]");
  const std::string max = "9223372036854775807";
  std::string deep = R"({"t":)";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  std::string axes = "[1";
  for (int i = 0; i < 1000; ++i) axes += ",1";
  axes += "]";
  return {
      {"nothing", "", "does not start with '{'"},
      {"padding before the object", " {" + good + "}", "does not start with '{'"},
      {"byte order mark", "\xef\xbb\xbf{" + good + "}", "does not start with '{'"},
      {"a list", "[]", "does not start with '{'"},
      {"no end", "{" + good, "not valid JSON"},
      {"two objects", "{" + good + "}{}", "not valid JSON"},
      {"NUL after the object", "{" + good + "}" + std::string(3, '\0'), "NUL byte"},
      {"NUL before more", "{" + good + "}" + std::string(1, '\0') + "{}", "NUL byte"},
      {"trailing comma", "{" + good + ",}", "not valid JSON"},
      {"broken UTF-8 in a name", "{\"\xff\xfe\":{}}", "not valid JSON"},
      {"overlong UTF-8", "{\"\xc0\xaf\":{}}", "not valid JSON"},
      {"lone surrogate", R"({"\ud800":{}})", "not valid JSON"},
      {"raw control character in a name", "{\"a\nb\":{}}", "not valid JSON"},
      {"deep nesting", deep, "holds a list"},
      {"deep objects", R"({"t":{"shape":{"a":{}}}})", "holds an object"},
      {"number for a tensor", R"({"t":5})", "holds a number"},
      {"null for a tensor", R"({"t":null})", "holds null"},
      {"list for a tensor", R"({"t":[]})", "holds a list"},
      {"no dtype", R"({"t":{"shape":[2],"data_offsets":[0,8]}})", "has no dtype"},
      {"no shape", R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", "has no shape"},
      {"no offsets", R"({"t":{"dtype":"F32","shape":[2]}})", "has 0 data_offsets"},
      {"one offset", "{" + Tensor("t", "F32", "[2]", "[0]") + "}", "has 1 data_offsets"},
      {"three offsets", "{" + Tensor("t", "F32", "[2]", "[0,8,8]") + "}", "more than two"},
      {"unknown field", R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})",
       "unknown field \"x\""},
      {"dtype twice", R"({"t":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
       "dtype twice"},
      {"shape twice", R"({"t":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})",
       "shape twice"},
      {"offsets twice",
       R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]}})",
       "data_offsets twice"},
      {"tensor twice", "{" + good + "," + Tensor("t", "U8", "[0]", "[8,8]") + "}",
       "tensor \"t\" appears twice"},
      {"tensor twice by an escape",
       "{" + good + "," + Tensor("\\u0074", "U8", "[0]", "[8,8]") + "}",
       "tensor \"t\" appears twice"},
      {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}," + good + "}", "appears twice"},
      {"metadata key twice", R"({"__metadata__":{"a":"1","a":"2"},)" + good + "}",
       "__metadata__ has \"a\" twice"},
      {"metadata number", R"({"__metadata__":{"a":1},)" + good + "}", "holds a number"},
      {"metadata is no object", R"({"__metadata__":"x",)" + good + "}", "holds a string"},
      {"float in the shape", "{" + Tensor("t", "F32", "[2.0]", "[0,8]") + "}", "2.0"},
      {"negative axis", "{" + Tensor("t", "F32", "[-2]", "[0,8]") + "}", "negative number -2"},
      {"text in the shape", "{" + Tensor("t", "F32", "[\"2\"]", "[0,8]") + "}", "holds a string"},
      {"axis beyond int64", "{" + Tensor("t", "U8", "[9223372036854775808]", "[0,8]") + "}",
       "beyond 2^63 - 1"},
      {"axis beyond uint64", "{" + Tensor("t", "U8", "[18446744073709551617]", "[0,8]") + "}",
       "not a whole number"},
      {"offset beyond int64", "{" + Tensor("t", "U8", "[8]", "[0,18446744073709551615]") + "}",
       "beyond 2^63 - 1"},
      {"product overflows to the right size",
       "{" + Tensor("t", "F32", "[4611686018427387905,4]", "[0,16]") + "}", "overflows"},
      {"bytes overflow", "{" + Tensor("t", "F64", "[" + max + "]", "[0,8]") + "}", "overflows"},
      {"overflow hidden by an empty axis",
       "{" + Tensor("t", "U8", "[" + max + "," + max + ",0]", "[0,0]") + "," +
           Tensor("u", "F32", "[2]", "[0,8]") + "}",
       "overflows"},
      {"thousand axes", "{" + Tensor("t", "F64", axes, "[0,8]") + "}", "more than 64 axes"},
      {"range too small", "{" + Tensor("t", "F32", "[3]", "[0,8]") + "}", "takes 12 bytes"},
      {"range too large", "{" + Tensor("t", "F32", "[1]", "[0,8]") + "}", "takes 4 bytes"},
      {"reversed range", "{" + Tensor("t", "F32", "[2]", "[8,0]") + "}", "reversed"},
      {"gap at the start", "{" + Tensor("t", "U8", "[7]", "[1,8]") + "}", "leave a gap"},
      {"gap between",
       "{" + Tensor("t", "U8", "[3]", "[0,3]") + "," + Tensor("u", "U8", "[4]", "[4,8]") + "}",
       "leave a gap"},
      {"overlap",
       "{" + Tensor("t", "U8", "[5]", "[0,5]") + "," + Tensor("u", "U8", "[4]", "[4,8]") + "}",
       "overlap"},
      {"same range twice", "{" + good + "," + Tensor("u", "F32", "[2]", "[0,8]") + "}", "overlap"},
      {"empty tensor inside another", "{" + good + "," + Tensor("u", "U8", "[0]", "[4,4]") + "}",
       "overlap"},
      {"bytes without a tensor", "{" + good + "}", "belong to no tensor", 9},
      {"data cut short", "{" + good + "}", "cut short", 7},
      {"no tensors but data", "{}", "belong to no tensor", 8},
  };
}

TEST(SafetensorsHeader, RefusesHostileText) {
  for (const Hostile& c : HostileHeaders()) {
    const auto header = ParseSafetensorsHeader(c.text, c.data_bytes);
    ASSERT_FALSE(header.ok()) << c.what;
    EXPECT_EQ(header.error().code(), StatusCode::kDataLoss) << c.what;
    EXPECT_THAT(header.error().message(), HasSubstr(c.message)) << c.what;
    EXPECT_LT(header.error().message().size(), 1000u) << c.what;
  }
}

TEST(SafetensorsHeader, UnknownElementTypeIsNamedWithTheKnownOnes) {
  const auto header = ParseSafetensorsHeader("{" + Tensor("t", "F8_E4M3", "[8]", "[0,8]") + "}", 8);
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.error().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(header.error().message(),
              testing::AllOf(HasSubstr("\"t\""), HasSubstr("F8_E4M3"), HasSubstr("BF16")));
}

TEST(SafetensorsHeader, MessagesCarryNoTerminalCodes) {
  const auto header = ParseSafetensorsHeader(R"({"\u001b[2J\u007f":{"dtype":"F32"}})", 0);
  ASSERT_FALSE(header.ok());
  EXPECT_THAT(header.error().message(), HasSubstr("\\u001b[2J\\u007f"));
}

TEST(SafetensorsHeader, TooLongIsRefusedByItsLengthAlone) {
  const auto header =
      ParseSafetensorsHeader("{}" + std::string(static_cast<size_t>(kMaxHeaderBytes) - 1, ' '), 0);
  ASSERT_FALSE(header.ok());
  EXPECT_THAT(header.error().message(), HasSubstr("more than the 100000000 allowed"));
}

TEST(SafetensorsHeader, WritesTheBytesOfThePublicWriter) {
  std::vector<TensorInfo> tensors = {
      {"ids", {DType::kI64, {2, 1}}},      {"a", {DType::kBF16, {2}}},
      {"b.weight", {DType::kF32, {2, 3}}}, {"mask", {DType::kBool, {3}}},
      {"half", {DType::kF16, Shape()}},    {"empty", {DType::kU8, {0, 4}}},
      {"na\xc3\xafve", {DType::kI32, {1}}}};
  SortAsSafetensors(tensors);
  // As in testdata/public_writer.safetensors.
  EXPECT_EQ(
      SafetensorsHeaderText(tensors),
      R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]},)"
      R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
      "\"na\xc3\xafve\""
      R"(:{"dtype":"I32","shape":[1],"data_offsets":[40,44]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[44,48]},)"
      R"("half":{"dtype":"F16","shape":[],"data_offsets":[48,50]},)"
      R"("empty":{"dtype":"U8","shape":[0,4],"data_offsets":[50,50]},)"
      R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[50,53]}}  )");
}

}  // namespace
}  // namespace ulmus::checkpoint
