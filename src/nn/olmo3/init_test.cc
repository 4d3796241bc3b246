#include "nn/olmo3/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/olmo3/sharding.h"

namespace ulmus::nn::olmo3 {
namespace {

Config Small() {
  Config config = *ConfigByName("14m");
  config.vocab_size = 1000;  // 1024 rows
  config.num_layers = 9;     // two groups and one layer alone
  config.pad_token_id = config.eos_token_id = std::nullopt;
  return config;
}

TEST(Init, AnyBlockIsCutFromTheWhole) {
  const Config config = Small();
  const Mesh mesh({{"fsdp", 4}, {"tensor", 2}});
  const AxisRules rules = DefaultRules(config, mesh);
  for (const InitStyle style : {InitStyle::kOlmoCore, InitStyle::kMaxText}) {
    const InitOptions options{.style = style, .seed = 7};
    for (const ParameterSpec& spec : Parameters(config)) {
      const HostTensor whole = InitialParameter(config, spec, options);
      const Sharding sharding = *ApplyRules(rules, mesh, spec.axes);
      for (int64_t device = 0; device < mesh.num_devices(); ++device) {
        const Dims offsets = ShardOffsets(mesh, spec.type.shape, sharding, device);
        HostTensor block({DType::kF32, LocalShape(mesh, spec.type.shape, sharding)});
        FillInitial(config, spec, options, offsets, block);
        ASSERT_TRUE(
            std::ranges::equal(block.bytes(), CopyBlock(whole, offsets, block.shape()).bytes()))
            << spec.name << " device " << device;
      }
    }
  }
}

TEST(Init, LayersDoNotDependOnTheirGrouping) {
  Config grouped = Small(), single = grouped;
  single.num_layers = 3;  // less than a period: each layer stands alone
  const auto find = [](const Config& config, std::string_view name) {
    const auto specs = Parameters(config);
    return *std::ranges::find(specs, name, &ParameterSpec::name);
  };
  const HostTensor stack = InitialParameter(
      grouped, find(grouped, "model.layer_groups.1.mlp.down_proj.weight"), {.seed = 3});
  const HostTensor layer =
      InitialParameter(single, find(single, "model.layers.1.mlp.down_proj.weight"), {.seed = 3});
  EXPECT_TRUE(
      std::ranges::equal(stack.values<float>().first(static_cast<size_t>(layer.num_elements())),
                         layer.values<float>()));
}

TEST(Init, MomentsAndBoundsAreTheStyles) {
  const Config config = Small();
  const auto specs = Parameters(config);
  for (const InitStyle style : {InitStyle::kOlmoCore, InitStyle::kMaxText}) {
    for (const InitRow& row : InitTable(config, {.style = style})) {
      // Four standard errors of mean and of standard deviation.
      const double n = static_cast<double>(row.shape.num_elements());
      const bool norm = row.shape.rank() == 1;
      EXPECT_NEAR(row.mean, norm ? 1 : 0, 4 * row.expected_stddev / std::sqrt(n)) << row.name;
      EXPECT_NEAR(row.stddev, row.expected_stddev, 4 * row.expected_stddev / std::sqrt(2 * n))
          << row.name;
    }
    for (const ParameterSpec& spec : specs) {
      const InitDistribution d = DistributionOf(config, spec.kind, style);
      if (d.bound == 0) continue;
      const HostTensor tensor = InitialParameter(config, spec, {.style = style});
      for (const float v : tensor.values<float>()) {
        ASSERT_LE(std::fabs(v), d.bound * d.stddev * (1 + 1e-6)) << spec.name;
      }
    }
  }
}

TEST(Init, EffectiveStddevsAreThePublishedOnes) {
  const Config config = *ConfigByName("7b");
  const auto stddev = [&](TensorKind kind, InitStyle style) {
    return DistributionOf(config, kind, style).EffectiveStddev();
  };
  EXPECT_NEAR(stddev(TensorKind::kHead, InitStyle::kOlmoCore), 0.01973157, 1e-8);
  EXPECT_NEAR(stddev(TensorKind::kEmbedding, InitStyle::kMaxText), 0.015625, 1e-12);
  EXPECT_NEAR(stddev(TensorKind::kDownProj, InitStyle::kMaxText), 1 / std::sqrt(11008.0), 1e-12);
  EXPECT_NEAR(stddev(TensorKind::kHead, InitStyle::kMaxText), 0.015625, 1e-12);
}

TEST(Init, SeedsDiffer) {
  const Config config = Small();
  const ParameterSpec spec = Parameters(config)[0];
  const HostTensor a = InitialParameter(config, spec, {.seed = 0}),
                   b = InitialParameter(config, spec, {.seed = 1});
  EXPECT_FALSE(std::ranges::equal(a.bytes(), b.bytes()));
}

TEST(Init, TableShowsEveryTensor) {
  const auto rows = InitTable(Small(), {}, 64);
  EXPECT_EQ(rows.size(), HfTensors(Small()).size());
  const std::string text = FormatInitTable(rows);
  EXPECT_THAT(text, testing::HasSubstr("model.layers.8.mlp.down_proj.weight"));
  EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<int64_t>(rows.size()) + 1);
}

}  // namespace
}  // namespace ulmus::nn::olmo3
