#include "checkpoint/zarr_metadata.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus::checkpoint {
namespace {

using ::testing::HasSubstr;

const char* const kValid = R"({"zarr_format":3,"node_type":"array","shape":[4,6],
  "data_type":"float32","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4,3]}},
  "chunk_key_encoding":{"name":"default"},"fill_value":0.0,
  "codecs":[{"name":"sharding_indexed","configuration":{"chunk_shape":[2,3],
    "codecs":["bytes","crc32c"],
    "index_codecs":[{"name":"bytes","configuration":{"endian":"little"}},"crc32c"]}}]})";

// kValid with the value at a JSON pointer replaced, or removed if `value` is "discard".
std::string With(const std::string& pointer, const std::string& value) {
  Json json = Json::parse(kValid);
  json["codecs"][0]["configuration"]["codecs"][0] = {{"name", "bytes"},
                                                     {"configuration", {{"endian", "little"}}}};
  const Json::json_pointer at(pointer);
  if (value == "discard") {
    json.at(at.parent_pointer()).erase(at.back());
  } else {
    json[at] = Json::parse(value);
  }
  return json.dump();
}

TEST(ZarrMetadata, WhatIsWrittenIsReadBack) {
  for (const DType dtype : kAllDTypes) {
    for (const bool sharded : {true, false}) {
      for (const std::byte fill : {std::byte{0}, std::byte{1}}) {
        ArrayMetadata array;
        array.type = {dtype, {4, 6}};
        array.chunk_shape = {4, 3};
        array.fill_value.assign(static_cast<size_t>(SizeBytes(dtype)), fill);
        array.keys = {.v2 = !sharded, .separator = '.'};
        array.codecs = {{.kind = ByteCodec::Kind::kZstd, .level = -3, .checksum = true}};
        if (sharded) {
          ShardLayout layout;
          layout.inner_shape = {2, 1};
          layout.codecs = std::exchange(array.codecs, {});
          layout.index_at_end = false;
          array.sharding = layout;
        }
        const auto parsed = ParseArrayMetadata(ArrayMetadataText(array));
        ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
        EXPECT_EQ(*parsed, array) << ArrayMetadataText(array);
      }
    }
  }
}

TEST(ZarrMetadata, KeysFollowTheEncoding) {
  ArrayMetadata array;
  EXPECT_EQ(array.ChunkKey({1, 2}), "c/1/2");
  EXPECT_EQ(array.ChunkKey({}), "c");
  array.keys = {.v2 = false, .separator = '.'};
  EXPECT_EQ(array.ChunkKey({1, 2}), "c.1.2");
  array.keys = {.v2 = true, .separator = '/'};
  EXPECT_EQ(array.ChunkKey({1, 2}), "1/2");
  EXPECT_EQ(array.ChunkKey({}), "0");
}

TEST(ZarrMetadata, SpecialFillValues) {
  const auto fill = [](const std::string& type, const std::string& value) {
    Json json = Json::parse(With("/fill_value", value));
    json["data_type"] = type;
    return ParseArrayMetadata(json.dump());
  };
  EXPECT_EQ(fill("float32", R"("0x7fc00001")")->fill_value,
            (std::vector{std::byte{1}, std::byte{0}, std::byte{0xc0}, std::byte{0x7f}}));
  EXPECT_EQ(fill("bfloat16", R"("-Infinity")")->fill_value,
            (std::vector{std::byte{0x80}, std::byte{0xff}}));
  EXPECT_EQ(fill("int8", "-128")->fill_value, (std::vector{std::byte{0x80}}));
  EXPECT_EQ(fill("uint64", "18446744073709551615")->fill_value, std::vector(8, std::byte{0xff}));
  for (const auto& [type, value] :
       std::vector<std::pair<std::string, std::string>>{{"int8", "128"},
                                                        {"int8", "-129"},
                                                        {"uint8", "-1"},
                                                        {"uint64", "-1"},
                                                        {"int32", "0.5"},
                                                        {"bool", "0"},
                                                        {"float32", R"("0xzz000000")"},
                                                        {"float32", "true"},
                                                        {"int64", "9223372036854775808"}})
    EXPECT_EQ(fill(type, value).status().code(), StatusCode::kInvalidArgument) << type << value;
}

struct BadCase {
  std::string pointer, value, says;
  StatusCode code = StatusCode::kInvalidArgument;
};

TEST(ZarrMetadata, BadFieldsAreNamed) {
  ASSERT_FALSE(ParseArrayMetadata(kValid).ok());  // "bytes" needs endian for float32
  ASSERT_TRUE(ParseArrayMetadata(With("/shape", "[4,6]")).ok());
  const std::string shard = "/codecs/0/configuration";
  const StatusCode unimplemented = StatusCode::kUnimplemented;
  const BadCase cases[] = {
      {"/zarr_format", "2", "zarr_format", unimplemented},
      {"/node_type", R"("group")", "node_type"},
      {"/shape", "[4,-6]", "shape"},
      {"/shape", "[4,6.0]", "shape"},
      {"/shape", "[72057594037927936,2]", "2^56"},
      {"/shape", "[18446744073709551615,2]", "shape"},
      {"/shape", "[0,72057594037927937]", "shape"},
      {"/shape", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "at most 16"},
      {"/shape", "discard", "no shape"},
      {"/data_type", R"("complex64")", "complex64", unimplemented},
      {"/data_type", R"({"name":"r16"})", "r16", unimplemented},
      {"/chunk_grid/name", R"("rectilinear")", "rectilinear", unimplemented},
      {"/chunk_grid/configuration/chunk_shape", "[4]", "chunk_shape"},
      {"/chunk_grid/configuration/chunk_shape", "[0,3]", "chunk_shape"},
      {"/chunk_grid/configuration/more", "1", "more"},
      {"/chunk_key_encoding/name", R"("v9")", "v9", unimplemented},
      {"/chunk_key_encoding/configuration", R"({"separator":".."})", "separator"},
      {"/fill_value", "discard", "fill_value"},
      {"/codecs", "[]", "codecs"},
      {"/codecs/0/name", R"("transpose")", "transpose", unimplemented},
      {"/codecs/0/name", R"("gzip")", "gzip", unimplemented},
      {"/codecs/1", R"("crc32c")", "after sharding_indexed", unimplemented},
      {shard + "/chunk_shape", "[3,3]", "does not divide"},
      {shard + "/chunk_shape", "[2]", "does not divide"},
      {shard + "/codecs/1", R"("blosc")", "blosc", unimplemented},
      {shard + "/codecs/0/configuration/endian", R"("big")", "big", unimplemented},
      {shard + "/codecs/1", R"({"name":"zstd","configuration":{"level":99}})", "level"},
      {shard + "/codecs/0/name", R"("sharding_indexed")", "sharding_indexed", unimplemented},
      {shard + "/index_codecs/1", R"({"name":"zstd","configuration":{"level":1}})", "index"},
      {shard + "/index_location", R"("middle")", "index_location"},
      {"/storage_transformers", "[1]", "storage_transformers", unimplemented},
      {"/dimension_names", R"(["x"])", "dimension_names"},
      {"/attributes", "[]", "attributes"},
      {"/surprise", "1", "surprise"},
  };
  for (const BadCase& bad : cases) {
    const Status status = ParseArrayMetadata(With(bad.pointer, bad.value)).status();
    EXPECT_EQ(status.code(), bad.code) << bad.pointer << " " << bad.value << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(bad.says)) << bad.pointer << " " << bad.value;
  }
  EXPECT_TRUE(ParseArrayMetadata(With("/hint", R"({"must_understand":false})")).ok());
}

}  // namespace
}  // namespace ulmus::checkpoint
