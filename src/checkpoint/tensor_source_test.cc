#include "checkpoint/tensor_source.h"

#include <gtest/gtest.h>

#include <numeric>

#include "checkpoint/testing/memory_source.h"

namespace ulmus::checkpoint {
namespace {

HostTensor Counting(Shape shape) {
  std::vector<int32_t> values(static_cast<size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0);
  return HostTensor(std::move(shape), std::span<const int32_t>(values));
}

TEST(TensorSource, BlockEqualsTheBlockOfTheWholeTensor) {
  std::map<std::string, HostTensor> tensors;
  tensors.emplace("t", Counting({3, 4, 5}));
  const MemorySource source(std::move(tensors));
  const HostTensor whole = Counting({3, 4, 5});
  struct Case {
    Dims offsets;
    Shape block;
  };
  const Case cases[] = {
      {{0, 0, 0}, {3, 4, 5}}, {{1, 0, 0}, {2, 4, 5}}, {{0, 1, 0}, {3, 2, 5}},
      {{2, 3, 4}, {1, 1, 1}}, {{1, 1, 1}, {2, 3, 3}}, {{0, 0, 2}, {3, 4, 2}},
      {{3, 0, 0}, {0, 4, 5}}, {{0, 4, 0}, {3, 0, 5}},
  };
  for (const Case& c : cases) {
    HostTensor block(TensorType{DType::kI32, c.block});
    ASSERT_TRUE(source.ReadBlock(0, c.offsets, c.block, block.bytes()).ok());
    const HostTensor expected = CopyBlock(whole, c.offsets, c.block);
    EXPECT_TRUE(std::ranges::equal(block.bytes(), expected.bytes())) << c.block.ToString();
  }
}

TEST(TensorSource, ScalarIsABlock) {
  std::map<std::string, HostTensor> tensors;
  tensors.emplace("t", Counting(Shape()));
  const MemorySource source(std::move(tensors));
  int32_t value = 7;
  ASSERT_TRUE(source.ReadBlock(0, {}, Shape(), std::as_writable_bytes(std::span(&value, 1))).ok());
  EXPECT_EQ(value, 0);
}

TEST(TensorSource, FindsByName) {
  std::map<std::string, HostTensor> tensors;
  for (const char* name : {"b", "a", "a.b"}) tensors.emplace(name, Counting({1}));
  const MemorySource source(std::move(tensors));
  EXPECT_EQ(FindTensor(source, "a"), 0);
  EXPECT_EQ(FindTensor(source, "a.b"), 1);
  EXPECT_EQ(FindTensor(source, "b"), 2);
  EXPECT_EQ(FindTensor(source, "c"), std::nullopt);
  EXPECT_EQ(FindTensor(source, ""), std::nullopt);
}

}  // namespace
}  // namespace ulmus::checkpoint
