// The claims of InstanceSource, checked against any implementation. For tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "data/instance_source.h"

namespace ulmus::data {

// One instance with buffers of its own.
struct OwnedInstance {
  explicit OwnedInstance(int64_t length)
      : tokens(static_cast<size_t>(length), -7),
        loss_mask(static_cast<size_t>(length), 7),
        segment_ids(static_cast<size_t>(length), -7),
        positions(static_cast<size_t>(length), -7) {}
  InstanceRow row() { return {tokens, loss_mask, segment_ids, positions}; }
  friend bool operator==(const OwnedInstance&, const OwnedInstance&) = default;

  std::vector<int32_t> tokens;
  std::vector<uint8_t> loss_mask;
  std::vector<int32_t> segment_ids;
  std::vector<int32_t> positions;
};

inline OwnedInstance ReadInstance(const InstanceSource& source, int64_t instance) {
  OwnedInstance owned(source.sequence_length());
  const Status status = source.Read(instance, owned.row());
  EXPECT_TRUE(status.ok()) << status.message();
  return owned;
}

// Masks, segments and positions that fit together; returns the number of tokens before the padding.
inline int64_t ExpectSoundRow(const OwnedInstance& owned) {
  const auto length = static_cast<int64_t>(owned.tokens.size());
  int64_t num_real = 0;
  while (num_real < length && owned.segment_ids[static_cast<size_t>(num_real)] != kPaddingSegment)
    ++num_real;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    SCOPED_TRACE("token " + std::to_string(i));
    const int32_t before = i == 0 ? 0 : owned.segment_ids[at - 1];
    EXPECT_LE(owned.loss_mask[at], 1);
    if (i >= num_real) {
      EXPECT_EQ(owned.segment_ids[at], kPaddingSegment);
      EXPECT_EQ(owned.loss_mask[at], 0);
      EXPECT_EQ(owned.positions[at], i - num_real);
    } else if (owned.segment_ids[at] == before) {
      EXPECT_EQ(owned.positions[at], owned.positions[at - 1] + 1);
    } else {
      EXPECT_EQ(owned.segment_ids[at], before + 1);
      EXPECT_EQ(owned.positions[at], 0);
    }
  }
  return num_real;
}

// Every subset of spans gets the same values as all of them at once.
inline void ExpectSpansIndependent(const InstanceSource& source, int64_t instance,
                                   const OwnedInstance& all) {
  for (int wanted = 0; wanted < 16; ++wanted) {
    OwnedInstance some(source.sequence_length());
    InstanceRow row;
    if (wanted & 1) row.tokens = some.tokens;
    if (wanted & 2) row.loss_mask = some.loss_mask;
    if (wanted & 4) row.segment_ids = some.segment_ids;
    if (wanted & 8) row.positions = some.positions;
    const Status status = source.Read(instance, row);
    ASSERT_TRUE(status.ok()) << status.message();
    const OwnedInstance untouched(source.sequence_length());
    EXPECT_EQ(some.tokens, wanted & 1 ? all.tokens : untouched.tokens);
    EXPECT_EQ(some.loss_mask, wanted & 2 ? all.loss_mask : untouched.loss_mask);
    EXPECT_EQ(some.segment_ids, wanted & 4 ? all.segment_ids : untouched.segment_ids);
    EXPECT_EQ(some.positions, wanted & 8 ? all.positions : untouched.positions);
  }
}

// The whole suite; reads every instance several times, so keep the source small. `again` is a
// second source made from the same files and options.
inline void ExpectConforms(const InstanceSource& source, const InstanceSource& again) {
  ASSERT_GT(source.sequence_length(), 0);
  EXPECT_FALSE(source.fingerprint().empty());
  EXPECT_FALSE(source.type().empty());
  EXPECT_EQ(source.fingerprint(), again.fingerprint());
  ASSERT_EQ(source.num_instances(), again.num_instances());
  EXPECT_EQ(source.max_target_sequence_length() % source.sequence_length(), 0);
  EXPECT_EQ(source.num_instances() % source.instances_per_chunk(), 0);

  std::vector<OwnedInstance> instances;
  for (int64_t i = 0; i < source.num_instances(); ++i) {
    SCOPED_TRACE("instance " + std::to_string(i));
    instances.push_back(ReadInstance(source, i));
    const int64_t num_real = ExpectSoundRow(instances.back());
    ExpectSpansIndependent(source, i, instances.back());
    const Result<InstanceOrigin> origin = source.Describe(i);
    ASSERT_TRUE(origin.ok()) << origin.status().message();
    int64_t described = 0;
    for (const TokenRange& range : origin->ranges) described += range.num_tokens;
    EXPECT_EQ(described, num_real);
  }
  // Backwards and from several threads: no hidden position.
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = source.num_instances() - 1; i >= 0; --i)
        EXPECT_TRUE(ReadInstance(again, i) == instances[static_cast<size_t>(i)]) << i;
    });
  }
}

}  // namespace ulmus::data
