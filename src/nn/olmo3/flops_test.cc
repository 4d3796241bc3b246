#include "nn/olmo3/flops.h"

#include <gtest/gtest.h>

namespace ulmus::nn::olmo3 {
namespace {

TEST(Flops, AllPublishedNumbers) {
  struct Row {
    const char* model;
    int64_t S;
    FlopsFormula formula;
    double flops;
  };
  using enum FlopsFormula;
  const Row rows[] = {
      {"7b", 8192, kOlmoCore, 49'376'944'128.0},   {"7b", 65536, kOlmoCore, 71'925'522'432.0},
      {"32b", 8192, kOlmoCore, 210'451'593'216.0}, {"32b", 65536, kOlmoCore, 266'823'038'976.0},
      {"7b", 8192, kMaxText, 47'762'915'328.0},    {"7b", 65536, kMaxText, 92'860'071'936.0},
      {"32b", 8192, kMaxText, 206'420'398'080.0},  {"32b", 65536, kMaxText, 319'163'289'600.0},
      {"7b", 8192, kExact, 46'554'955'776.0},      {"7b", 65536, kExact, 58'886'209'536.0},
      {"32b", 8192, kExact, 203'400'499'200.0},    {"32b", 65536, kExact, 234'228'633'600.0},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(ComputeFlopsPerToken(*ConfigByName(row.model), row.S, row.formula), row.flops)
        << row.model << " S=" << row.S << " " << Name(row.formula);
  }
}

TEST(Flops, HeadLayoutChangesNothing) {
  const Config narrow = *ConfigByName("7b");
  Config wide = narrow;
  wide.num_heads = wide.num_kv_heads = 16;
  wide.head_dim = 256;
  for (const FlopsFormula formula : kAllFlopsFormulas) {
    EXPECT_EQ(ComputeFlopsPerToken(wide, 8192, formula),
              ComputeFlopsPerToken(narrow, 8192, formula));
  }
}

TEST(Flops, WithinTheWindowExactIsMaxText) {
  const Config config = *ConfigByName("7b");
  EXPECT_EQ(ComputeFlopsPerToken(config, 4096, FlopsFormula::kExact),
            ComputeFlopsPerToken(config, 4096, FlopsFormula::kMaxText));
}

TEST(Flops, NamesParseBack) {
  for (const FlopsFormula formula : kAllFlopsFormulas) {
    EXPECT_EQ(*ParseFlopsFormula(Name(formula)), formula);
  }
  EXPECT_FALSE(ParseFlopsFormula("palm").ok());
}

}  // namespace
}  // namespace ulmus::nn::olmo3
