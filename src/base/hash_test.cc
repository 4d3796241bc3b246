#include "base/hash.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ulmus {
namespace {

std::vector<std::byte> RandomBytes(size_t size, std::mt19937_64& rng) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
  return bytes;
}

TEST(Sha256, MatchesPublishedDigests) {  // FIPS 180-2, appendix B
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesEqualTheWholeAndDigestDoesNotEndTheStream) {
  Sha256 hash;
  hash.Update("a");
  EXPECT_EQ(hash.hex(), Sha256Hex("a"));
  hash.Update("bc");
  EXPECT_EQ(hash.hex(), Sha256Hex("abc"));
}

TEST(Xxh3, MatchesPublishedValues) {  // xxhsum -H3 and -H2 of the empty input
  EXPECT_EQ(Xxh3(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Xxh3Wide("").hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Xxh3, PiecesEqualTheWhole) {
  std::mt19937_64 rng(1);
  for (size_t size : {0u, 1u, 16u, 17u, 240u, 241u, 1024u, 5000u}) {
    const std::vector<std::byte> bytes = RandomBytes(size, rng);
    for (uint64_t seed : {0ull, 42ull}) {
      Xxh3Stream stream(seed);
      for (size_t begin = 0; begin < size; begin += 37)
        stream.Update(std::span(bytes).subspan(begin, std::min<size_t>(37, size - begin)));
      EXPECT_EQ(stream.digest(), Xxh3(bytes, seed)) << size;
      EXPECT_EQ(stream.wide_digest(), Xxh3Wide(bytes, seed)) << size;
    }
  }
}

TEST(Crc32c, MatchesPublishedValues) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32cPortable(AsBytes("123456789"), 0), 0xe3069283u);
}

TEST(Crc32c, HardwareEqualsTables) {
  if (!HasCrc32cInstruction()) GTEST_SKIP() << "no CRC-32C instruction on this machine";
  std::mt19937_64 rng(2);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<std::byte> bytes = RandomBytes(rng() % 300, rng);
    const auto crc = static_cast<uint32_t>(rng());
    EXPECT_EQ(Crc32cHardware(bytes, crc), Crc32cPortable(bytes, crc)) << bytes.size();
  }
}

TEST(Crc32c, ContinuesFromTheBytesBefore) {
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), Crc32c("123456789"));
  EXPECT_EQ(Crc32cPortable(AsBytes("89"), Crc32cPortable(AsBytes("1234567"), 0)), 0xe3069283u);
}

TEST(RollingHash, SeesOrderRepeatsAndZeros) {
  const auto hash = [](std::vector<uint64_t> ids) {
    RollingHash rolling;
    rolling.Add(ids);
    return rolling.value();
  };
  EXPECT_NE(hash({1, 2}), hash({2, 1}));
  EXPECT_NE(hash({1}), hash({1, 1}));
  EXPECT_NE(hash({}), hash({0}));
  EXPECT_NE(hash({0}), hash({0, 0}));
  EXPECT_NE(hash({1, 0}), hash({0, 1}));
}

TEST(RollingHash, GoesOnFromAStoredValue) {
  RollingHash whole, first;
  whole.Add(std::vector<uint64_t>{1, 2, 3});
  first.Add(1);
  RollingHash resumed(first.value());
  resumed.Add(std::vector<uint64_t>{2, 3});
  EXPECT_EQ(resumed, whole);
  // Checkpoints store the value: it must not change between versions. Computed by hand from the
  // formula.
  EXPECT_EQ(whole.value(), 17703227011972668036u);
}

}  // namespace
}  // namespace ulmus
