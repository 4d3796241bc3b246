#include "tensor/mesh.h"

#include <gtest/gtest.h>

namespace ulmus {
namespace {

const Mesh kMesh({{"data", 1}, {"fsdp", 4}, {"tensor", 2}});

TEST(Mesh, DeviceIndexIsRowMajorOverAxes) {
  EXPECT_EQ(kMesh.num_devices(), 8);
  EXPECT_EQ(kMesh.AxisIndex("fsdp", 5), 2);
  EXPECT_EQ(kMesh.AxisIndex("tensor", 5), 1);
}

TEST(Sharding, IndivisibleDimensionPrintsTheEquation) {
  const Status status = ValidateSharding(kMesh, {8, 6}, {{{"tensor"}, {"fsdp"}}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("6 % (fsdp=4) = 2"), std::string::npos) << status.message();
}

TEST(Sharding, OffsetsOfAllDevicesTileTheTensor) {
  const Sharding sharding{{{"tensor", "fsdp"}, {}}};
  EXPECT_EQ(LocalShape(kMesh, {16, 3}, sharding), (Shape{2, 3}));
  std::vector<int64_t> starts;
  for (int64_t device = 0; device < 8; ++device)
    starts.push_back(ShardOffsets(kMesh, {16, 3}, sharding, device)[0]);
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 8, 2, 10, 4, 12, 6, 14}));
}

TEST(AxisRules, FirstDimensionWinsAContestedMeshAxis) {
  const AxisRules rules = {{"embed", {"fsdp"}}, {"batch", {"data", "fsdp"}}};
  const std::string axes[] = {"batch", "", "embed"};
  const Result<Sharding> sharding = ApplyRules(rules, kMesh, axes);
  ASSERT_TRUE(sharding.ok());
  EXPECT_EQ(sharding->ToString(), "[{data,fsdp}, {}, {}]");
}

}  // namespace
}  // namespace ulmus
