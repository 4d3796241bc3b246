// The table of models: what tools need to know of a model without knowing which it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/shape.h"

namespace ulmus::nn {

// One tensor of a Hugging Face checkpoint.
struct ModelTensor {
  std::string name;
  Shape shape;
};

struct ModelPreset {
  std::string name;       // "7b"
  std::string hf_config;  // config.json
};

struct Model {
  std::string_view name;           // as recipes spell it
  std::string_view hf_model_type;  // `model_type` in config.json
  std::vector<ModelPreset> (*presets)();
  // Every tensor of the checkpoint that a config.json describes.
  Result<std::vector<ModelTensor>> (*hf_tensors)(std::string_view hf_config);
  // Weights in all, without padding rows.
  Result<int64_t> (*count_parameters)(std::string_view hf_config);
};
const std::vector<Model>& Models();
// By `model_type` of a config.json. kNotFound lists the types that exist.
Result<const Model*> ModelByHfType(std::string_view model_type);

}  // namespace ulmus::nn
