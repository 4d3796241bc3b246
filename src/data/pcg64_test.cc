#include "data/pcg64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

using Words = std::vector<uint64_t>;

TEST(SeedSequence, SameWordsAsNumpy) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["seedsequence_state_u32x8"];
  ASSERT_EQ(golden.size(), 3u);
  for (const auto& [seed, words] : golden.items()) {
    const auto found = SeedSequenceWords(std::stoull(seed));
    EXPECT_EQ(Words(found.begin(), found.end()), words.get<Words>()) << seed;
  }
}

TEST(Pcg64, SameWordsAsNumpy) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["pcg64_raw_u64"];
  ASSERT_EQ(golden.size(), 3u);
  for (const auto& [seed, words] : golden.items()) {
    Pcg64 rng(std::stoull(seed));
    for (const auto& word : words) EXPECT_EQ(rng.Next64(), word.get<uint64_t>()) << seed;
  }
}

TEST(Pcg64, HalvesOfAWordComeLowFirst) {
  Pcg64 halves(34522);
  Pcg64 words(34522);
  for (int i = 0; i < 3; ++i) {
    const uint64_t word = words.Next64();
    EXPECT_EQ(halves.Next32(), static_cast<uint32_t>(word));
    EXPECT_EQ(halves.Next32(), static_cast<uint32_t>(word >> 32));
  }
}

// Swap partners that numpy.random.Generator.shuffle asked an object of that length for: 64-bit
// draws while the position is beyond 2^32 - 1, 32-bit draws after.
TEST(Pcg64, SameDrawsAsNumpyBeyond32Bits) {
  const nlohmann::json golden = ReadTestJson("numpy_grain_order.json")["partners"];
  ASSERT_EQ(golden.size(), 4u);
  for (const nlohmann::json& entry : golden) {
    Pcg64 rng(entry["seed"].get<uint64_t>());
    auto i = entry["n"].get<uint64_t>();
    for (const auto& partner : entry["partners"])
      EXPECT_EQ(rng.Interval(--i), partner.get<uint64_t>()) << entry["n"] << " at " << i;
  }
}

TEST(Pcg64, IntervalOfOneValueDrawsNothing) {
  Pcg64 rng(7);
  EXPECT_EQ(rng.Interval(0), 0u);
  EXPECT_EQ(rng.Next64(), Pcg64(7).Next64());
}

}  // namespace
}  // namespace ulmus::data
