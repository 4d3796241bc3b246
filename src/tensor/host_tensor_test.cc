#include "tensor/host_tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace ulmus {
namespace {

TEST(HostTensor, BlocksCutAndPastedBackGiveTheWhole) {
  std::vector<int32_t> numbers(4 * 6 * 2);
  std::iota(numbers.begin(), numbers.end(), 0);
  const HostTensor whole(Shape{4, 6, 2}, std::span<const int32_t>(numbers));
  HostTensor copy(whole.type());
  for (int64_t i = 0; i < 4; i += 2) {
    for (int64_t j = 0; j < 6; j += 3)
      PasteBlock(CopyBlock(whole, {i, j, 0}, Shape{2, 3, 2}), {i, j, 0}, copy);
  }
  for (int64_t k = 0; k < whole.num_elements(); ++k) EXPECT_EQ(copy.Get(k), whole.Get(k));
  EXPECT_EQ(CopyBlock(whole, {2, 3, 0}, Shape{1, 1, 2}).Get(1), 2 * 12 + 3 * 2 + 1);
}

TEST(HostTensor, StorageIsAlignedForZeroCopyAndRoundsOnSet) {
  HostTensor t(TensorType{DType::kBF16, {3}});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.bytes().data()) % kHostAlignment, 0u);
  t.Set(1, 1.00390625);
  EXPECT_EQ(t.Get(1), 1.0);
}

}  // namespace
}  // namespace ulmus
