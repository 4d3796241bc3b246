#include "data/index_shuffle.h"

#include <gtest/gtest.h>

#include <vector>

#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

TEST(IndexShuffle, SameAsGrain) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["grain_index_shuffle_rounds4"];
  ASSERT_EQ(golden.size(), 6u);
  for (const nlohmann::json& entry : golden) {
    const IndexShuffle shuffle(entry["n"].get<int64_t>(), entry["seed"].get<uint32_t>());
    int64_t index = 0;
    for (const auto& value : entry["first"])
      EXPECT_EQ(shuffle(index++), value.get<int64_t>()) << entry["n"];
  }
}

TEST(IndexShuffle, SameAsGrainBeyond32Bits) {
  const nlohmann::json golden = ReadTestJson("numpy_grain_order.json")["grain_large"];
  ASSERT_EQ(golden.size(), 6u);
  for (const nlohmann::json& entry : golden) {
    const IndexShuffle shuffle(entry["n"].get<int64_t>(), entry["seed"].get<uint32_t>());
    for (size_t k = 0; k < entry["index"].size(); ++k)
      EXPECT_EQ(shuffle(entry["index"][k].get<int64_t>()), entry["value"][k].get<int64_t>())
          << entry["n"];
  }
}

// Among the sizes is 65537, where Grain itself repeats element 0 and never gives the last.
TEST(IndexShuffle, GivesEachElementOnce) {
  for (const int64_t size : {1, 2, 3, 10, 65535, 65536, 65537, 65538, 70001, 262145}) {
    const IndexShuffle shuffle(size, 42);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = shuffle(i);
      ASSERT_TRUE(value >= 0 && value < size) << size;
      ASSERT_FALSE(seen[static_cast<size_t>(value)]) << value << " of " << size;
      seen[static_cast<size_t>(value)] = true;
    }
  }
}

}  // namespace
}  // namespace ulmus::data
