// The tiny model of testdata/tiny_model.json: weights by formula, logits, losses and gradients
// computed in double by another program. No test framework in here.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/interpret.h"
#include "nn/olmo3/model.h"

namespace ulmus::nn::olmo3 {

struct Golden {
  Config config;  // without YaRN
  Yarn yarn;
  std::vector<std::string> names;  // of the tensors, as the formula numbers them
  std::vector<int32_t> tokens;     // one row of 12
  nlohmann::json json;
};
Golden LoadGolden();

// The three variants of the file.
struct GoldenVariant {
  const char* name;
  Config config;
};
std::vector<GoldenVariant> GoldenVariants(const Golden& golden);

// The formula's value of element `index` of tensor number `tensor`.
double FormulaWeight(int64_t tensor, int64_t index, bool is_norm);
// One tensor per parameter, padding rows zero. Tensors are numbered by their sorted names, so any
// configuration has weights.
std::vector<graph::RefTensor> FormulaWeights(const Config& config);

// Tokens of the formula ids[i] = (7 i^2 + 3 i + 5 + row * 11) mod V.
HostTensor FormulaTokens(const Config& config, int64_t B, int64_t T);

// Loss and gradients of a batch as a program: arguments are the parameters, tokens and, with
// documents, segment ids. Results: "logits" (if asked for), "ce", "z", then a gradient per
// parameter of ce + 1e-5 z.
struct LossProgramOptions {
  ForwardOptions forward = {.dtype = DType::kF32};
  Mesh mesh = {};
  int64_t B = 1, T = 12;
  bool logits = false, documents = false;
};
std::unique_ptr<graph::Graph> LossProgram(const Config& config, const LossProgramOptions& options);

}  // namespace ulmus::nn::olmo3
