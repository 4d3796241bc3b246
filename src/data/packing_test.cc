#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "data/python_shuffle.h"
#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

using Ints = std::vector<int64_t>;

std::vector<Ints> LengthsByInstance(const Ints& lengths, int64_t capacity) {
  const Packing packing = PackBestFit(lengths, capacity);
  std::vector<Ints> instances;
  for (int64_t k = 0; k < packing.num_instances(); ++k) {
    instances.emplace_back();
    for (int64_t document : packing.instance(k))
      instances.back().push_back(lengths[static_cast<size_t>(document)]);
  }
  return instances;
}

// What OLMo-core's InstancePacker makes of documents without ties.
TEST(PackBestFit, EqualsOlmoCore) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["obfd_packing"];
  ASSERT_EQ(golden.size(), 3u);
  for (const nlohmann::json& entry : golden) {
    EXPECT_EQ(LengthsByInstance(entry["doc_lengths"].get<Ints>(), entry["L"].get<int64_t>()),
              entry["lengths_per_instance"].get<std::vector<Ints>>());
  }
}

TEST(PackBestFit, KeepsTheOrderOfEqualLengths) {
  const Packing packing = PackBestFit(Ints{3, 3, 3, 3, 2}, 6);
  EXPECT_EQ(packing.documents, (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(packing.first, (Ints{0, 2, 4, 5}));
}

// The rule as it reads, in quadratic time.
std::vector<Ints> PackNaively(const Ints& lengths, int64_t capacity) {
  Ints order(lengths.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<Ints> instances;
  std::vector<std::pair<int64_t, size_t>> open;  // room and instance, longest waiting first
  for (int64_t document : order) {
    const int64_t length = lengths[static_cast<size_t>(document)];
    auto best = open.end();
    for (auto it = open.begin(); it != open.end(); ++it) {
      if (it->first >= length && (best == open.end() || it->first < best->first)) best = it;
    }
    std::pair<int64_t, size_t> taken(capacity, instances.size());
    if (best == open.end()) {
      instances.emplace_back();
    } else {
      taken = *best;
      open.erase(best);
    }
    instances[taken.second].push_back(document);
    if (taken.first > length) open.emplace_back(taken.first - length, taken.second);
  }
  return instances;
}

TEST(PackBestFit, EqualsItsNaiveTwin) {
  std::mt19937 random(1);
  for (int64_t capacity : {1, 2, 63, 64, 65, 4097}) {
    Ints lengths;
    for (int i = 0; i < 700; ++i) lengths.push_back(1 + static_cast<int64_t>(random()) % capacity);
    const Packing packing = PackBestFit(lengths, capacity);
    const std::vector<Ints> expected = PackNaively(lengths, capacity);
    ASSERT_EQ(packing.num_instances(), static_cast<int64_t>(expected.size()));
    for (int64_t k = 0; k < packing.num_instances(); ++k) {
      const auto instance = packing.instance(k);
      EXPECT_EQ(Ints(instance.begin(), instance.end()), expected[static_cast<size_t>(k)])
          << "capacity " << capacity << ", instance " << k;
    }
  }
}

TEST(PackBestFit, OfNothingIsNothing) { EXPECT_EQ(PackBestFit(Ints{}, 8).num_instances(), 0); }

// Values of CPython's random.Random(seed).shuffle.
TEST(PythonShuffle, EqualsPython) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["python_random_shuffle"];
  ASSERT_EQ(golden.size(), 3u);
  for (const nlohmann::json& entry : golden) {
    const auto expected = entry["order"].get<Ints>();
    Ints order = PythonShuffle(entry["seed"].get<uint64_t>(), entry["n"].get<int64_t>());
    order.resize(expected.size());
    EXPECT_EQ(order, expected);
  }
  // A seed of two words.
  EXPECT_EQ(PythonShuffle((uint64_t{7} << 32) | 5, 8), (Ints{7, 4, 6, 2, 0, 3, 1, 5}));
  EXPECT_TRUE(PythonShuffle(1, 0).empty());
}

}  // namespace
}  // namespace ulmus::data
