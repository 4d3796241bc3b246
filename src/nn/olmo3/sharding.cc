#include "nn/olmo3/sharding.h"

namespace ulmus::nn::olmo3 {
namespace {

Status CheckTensor(const Mesh& mesh, const AxisRules& rules, std::string_view name,
                   const Shape& shape, const std::vector<std::string>& axes) {
  const Sharding sharding = TRY(ApplyRules(rules, mesh, axes));
  return ValidateSharding(mesh, shape, sharding).WithContext(name);
}

}  // namespace

AxisRules DefaultRules(const Config& config, const Mesh& mesh) {
  AxisRules rules = {{"batch", {"data", "fsdp"}}, {"seq", {"context"}},  {"vocab", {"tensor"}},
                     {"embed", {"fsdp"}},         {"heads", {"tensor"}}, {"kv", {"tensor"}},
                     {"mlp", {"tensor"}},         {"layers", {}},        {"norm", {}}};
  if (mesh.HasAxis("tensor") && config.num_kv_heads % mesh.AxisSize("tensor") != 0) {
    rules["kv"] = {};
  }
  return rules;
}

Status ValidateMesh(const Config& config, const Mesh& mesh, const AxisRules& rules, int64_t B,
                    int64_t T) {
  for (const ParameterSpec& spec : Parameters(config)) {
    TRY(CheckTensor(mesh, rules, spec.name, spec.type.shape, spec.axes));
  }
  TRY(CheckTensor(mesh, rules, "tokens [batch,sequence]", {B, T}, {"batch", "seq"}));
  return CheckTensor(mesh, rules, "queries [batch,sequence,heads,head width]",
                     {B, T, config.num_heads, config.head_dim}, {"batch", "seq", "heads", ""});
}

}  // namespace ulmus::nn::olmo3
