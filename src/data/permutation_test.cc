#include "data/permutation.h"

#include <gtest/gtest.h>

#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

TEST(Permutation, SameAsNumpy) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["numpy_pcg64_shuffle"];
  ASSERT_EQ(golden.size(), 7u);
  for (const nlohmann::json& entry : golden) {
    const auto seed = entry["seed_plus_epoch"].get<uint64_t>();
    std::vector<int64_t> found = MakePermutation<int64_t>(seed, entry["n"].get<int64_t>());
    found.resize(entry["order"].size());
    EXPECT_EQ(found, entry["order"].get<std::vector<int64_t>>()) << seed << " " << entry["n"];
  }
}

TEST(Permutation, EveryEntryOfALargerOneIsNumpys) {
  const nlohmann::json golden = ReadTestJson("numpy_grain_order.json")["whole"];
  ASSERT_EQ(golden.size(), 3u);
  for (const nlohmann::json& entry : golden) {
    uint64_t sum = 0;
    uint64_t place = 0;
    const auto size = entry["n"].get<int64_t>();
    for (const uint32_t value : MakePermutation<uint32_t>(entry["seed"].get<uint64_t>(), size))
      sum ^= ++place * value;
    EXPECT_EQ(sum, entry["xor_of_i_times_value"].get<uint64_t>()) << entry["n"];
  }
}

TEST(PermutationTail, IsTheEndOfTheWhole) {
  for (const int64_t size : {1, 2, 100, 5000}) {
    const std::vector<int64_t> whole = MakePermutation<int64_t>(9, size);
    for (const int64_t count : {int64_t{1}, int64_t{37}, size}) {
      const std::vector<int64_t> tail = PermutationTail(9, size, count);
      EXPECT_EQ(tail, std::vector<int64_t>(whole.end() - std::min(count, size), whole.end()))
          << size;
    }
  }
}

}  // namespace
}  // namespace ulmus::data
