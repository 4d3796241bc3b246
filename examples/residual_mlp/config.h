// Options of the example: sizes, mesh, optimizer and data of a small network that predicts the next
// byte of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "base/status.h"
#include "tensor/mesh.h"

namespace ulmus::residual_mlp {

// Sizes: B batch, C context bytes, E embedding width, D = C * E model width, L layers, F hidden
// width.
struct Config {
  struct Model {
    int64_t num_layers = 16;
    int64_t context_bytes = 16;
    int64_t embedding_width = 8;
    int64_t hidden_width = 512;
    bool remat =
        true;  // run each layer again in the backward pass instead of keeping its hidden values
    bool kernels = false;  // RMS norm by our CPU kernel instead of XLA's own code
    int64_t width() const { return context_bytes * embedding_width; }
  } model;
  struct Train {
    int64_t steps = 300;
    int64_t batch_size = 256;
    int64_t eval_interval = 50;
    int64_t seed = 0;
  } train;
  struct Optim {  // AdamW: Loshchilov and Hutter 2019, algorithm 2
    double lr = 1e-3;
    int64_t warmup_steps = 20;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    double max_grad_norm = 1.0;
  } optim;
  struct MeshSizes {
    int64_t fsdp = 4, tensor = 2;
  } mesh;
  struct Data {
    std::vector<std::string> paths = {"LICENSE"};
  } data;
};

const Schema& ConfigSchema();
Config ReadConfig(const Recipe& recipe);

// Axes "fsdp" and "tensor", sizes as configured.
Mesh MeshOf(const Config& config);
// kInvalidArgument naming the keys if a size does not divide over the mesh.
Status ValidateConfig(const Config& config);

}  // namespace ulmus::residual_mlp
