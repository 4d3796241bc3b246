#include "nn/models.h"

#include "nn/olmo3/parameters.h"

namespace ulmus::nn {
namespace {

std::vector<ModelPreset> Olmo3Presets() {
  std::vector<ModelPreset> presets;
  for (const olmo3::ConfigPreset& preset : olmo3::ConfigPresets()) {
    presets.push_back(
        {.name = std::string(preset.name), .hf_config = olmo3::ConfigToHf(preset.make())});
  }
  return presets;
}

Result<std::vector<ModelTensor>> Olmo3Tensors(std::string_view hf_config) {
  const olmo3::Config config = TRY(olmo3::ConfigFromHf(hf_config));
  std::vector<ModelTensor> tensors;
  for (olmo3::HfTensor& tensor : olmo3::HfTensors(config)) {
    tensors.push_back({.name = std::move(tensor.name), .shape = std::move(tensor.shape)});
  }
  return tensors;
}

Result<int64_t> Olmo3Count(std::string_view hf_config) {
  return olmo3::CountParameters(TRY(olmo3::ConfigFromHf(hf_config))).total;
}

}  // namespace

const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"olmo3", "olmo3", Olmo3Presets, Olmo3Tensors, Olmo3Count},
  };
  return models;
}

Result<const Model*> ModelByHfType(std::string_view model_type) {
  std::string types;
  for (const Model& model : Models()) {
    if (model.hf_model_type == model_type) return &model;
    types += fmt::format("{}{}", types.empty() ? "" : " ", model.hf_model_type);
  }
  return NotFoundError("no model has model_type `{}`; there are: {}", model_type, types);
}

}  // namespace ulmus::nn
