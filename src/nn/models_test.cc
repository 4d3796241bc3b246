// What every model of the table must hold.
#include "nn/models.h"

#include <gtest/gtest.h>

#include <set>

namespace ulmus::nn {
namespace {

TEST(Models, TensorsOfEveryPresetAddUpToItsCount) {
  for (const Model& model : Models()) {
    for (const ModelPreset& preset : model.presets()) {
      const auto tensors = model.hf_tensors(preset.hf_config);
      ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
      std::set<std::string> names;
      int64_t total = 0;
      for (const ModelTensor& tensor : *tensors) {
        EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        total += tensor.shape.num_elements();
      }
      EXPECT_EQ(total, *model.count_parameters(preset.hf_config)) << preset.name;
    }
  }
}

TEST(Models, AreFoundByType) {
  for (const Model& model : Models()) {
    EXPECT_EQ(*ModelByHfType(model.hf_model_type), &model);
  }
  EXPECT_EQ(ModelByHfType("llama").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ulmus::nn
