// The data of a PyTorch run that follows OLMo-core's rules, step by step.
#include <gtest/gtest.h>

#include <map>

#include "base/hash.h"
#include "data/loader.h"
#include "data/testing/fake_source.h"
#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

constexpr int64_t kLength = 256;

std::string HashOfIds(std::span<const int64_t> ids) {
  std::string bytes;
  for (const int64_t id : ids) {
    for (int byte = 0; byte < 4; ++byte) bytes.push_back(static_cast<char>(id >> (8 * byte)));
  }
  return Sha256Hex(bytes).substr(0, 16);
}

TEST(ReferenceRun, InstancesFilterAndDivisorOfEveryStep) {
  const nlohmann::json golden = ReadTestJson("reference_order.json");
  std::map<int64_t, std::vector<int32_t>> caught;  // by instance
  std::map<int64_t, int64_t> instance_caught_at;   // by step
  for (const nlohmann::json& entry : golden["filtered"]) {
    caught[entry["instance"]] = entry["tokens"].get<std::vector<int32_t>>();
    instance_caught_at[entry["step"]] = entry["instance"];
  }
  ASSERT_EQ(caught.size(), 8u);
  // The other instances hold nothing that repeats.
  const FakeSource source({.num_instances = 10'138,
                           .sequence_length = kLength,
                           .token = [&](int64_t instance, int64_t t) {
                             const auto it = caught.find(instance);
                             return it == caught.end() ? static_cast<int32_t>(t)
                                                       : it->second.at(static_cast<size_t>(t));
                           }});
  const auto order = GlobalOrder::Create({.kind = OrderKind::kOlmoCore,
                                          .seed = 34521,
                                          .num_instances = source.num_instances(),
                                          .batch_size = 16});
  ASSERT_TRUE(order.ok()) << order.status().message();
  EXPECT_EQ((*order)->num_steps(), 633);
  const auto loader = Loader::Create(source, **order, {.batch = {.filter_ngrams = true}});
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  const nlohmann::json& hashes = golden["instances_sha256"];
  ASSERT_EQ(hashes.size(), 600u);
  for (int64_t step = 1; step <= 600; ++step) {  // as the run counts them
    const auto next = (*loader)->Next();
    ASSERT_TRUE(next.ok()) << next.status().message();
    const Batch& batch = **next;
    EXPECT_EQ(HashOfIds(batch.global_ids), hashes[static_cast<size_t>(step - 1)]) << step;
    const auto at = instance_caught_at.find(step);
    const bool expect_caught = at != instance_caught_at.end();
    EXPECT_EQ(batch.num_filtered, expect_caught ? 1 : 0) << step;
    EXPECT_EQ(batch.divisor,
              golden[expect_caught ? "divisor_with_one_filtered" : "divisor_without_filtered"])
        << step;
    if (expect_caught) {
      EXPECT_EQ(std::ranges::count(batch.global_ids, at->second), 1) << step;
    }
  }
}

}  // namespace
}  // namespace ulmus::data
