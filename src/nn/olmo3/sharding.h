// How the model lies on a mesh: logical axis names to the axes data, fsdp, tensor, context. Nothing
// else in the model knows of meshes.
#pragma once

#include "nn/olmo3/parameters.h"
#include "tensor/mesh.h"

namespace ulmus::nn::olmo3 {

// batch -> data fsdp; seq -> context; heads, kv, mlp, vocab -> tensor; embed (of weights) -> fsdp;
// layers, norm stay whole. Key-value heads that do not divide over `tensor` stay whole as well.
AxisRules DefaultRules(const Config& config, const Mesh& mesh);

// kInvalidArgument with the equation that does not hold if a weight, or the activations of a batch
// tokens [B,T], cannot be cut as the rules say.
Status ValidateMesh(const Config& config, const Mesh& mesh, const AxisRules& rules, int64_t B,
                    int64_t T);

}  // namespace ulmus::nn::olmo3
