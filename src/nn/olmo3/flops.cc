#include "nn/olmo3/flops.h"

#include <algorithm>

namespace ulmus::nn::olmo3 {
namespace {

struct Sizes {
  double D, F, L, Q, KV;  // Q = N*H, KV = K*H
};

Sizes SizesOf(const Config& c) {
  return {.D = static_cast<double>(c.hidden_size),
          .F = static_cast<double>(c.intermediate_size),
          .L = static_cast<double>(c.num_layers),
          .Q = static_cast<double>(c.num_heads * c.head_dim),
          .KV = static_cast<double>(c.num_kv_heads * c.head_dim)};
}

double OlmoCore(const Config& c, double S) {
  const auto [D, F, L, Q, KV] = SizesOf(c);
  double flops = 6 * (static_cast<double>(c.padded_vocab_size()) * D + D);
  for (int64_t l = 0; l < c.num_layers; ++l) {
    const double keys = c.is_full(l) ? S : std::min(static_cast<double>(c.sliding_window), S);
    flops += 6 * (2 * D * Q + 2 * D * KV + Q + KV) + 12 * Q * keys + 6 * 3 * D * F;
  }
  return flops;
}

// Weights of MaxText's formula, without the scores.
double MaxTextWeights(const Config& c) {
  const auto [D, F, L, Q, KV] = SizesOf(c);
  const double layer = 6 * D * F + 2 * D * (Q + 2 * KV) + 2 * D * Q;
  return 3 * (L * layer + 2 * D * static_cast<double>(c.vocab_size));
}

// Mean number of keys a query sees, times two: 4 flops per pair and unit of Q, forward.
double TwiceMeanKeys(const Config& c, int64_t layer, double S, bool windows) {
  const auto W = static_cast<double>(c.sliding_window);
  if (!windows || c.is_full(layer) || S <= W) return S;
  return 2 * (W - W * W / (2 * S));
}

}  // namespace

std::string_view Name(FlopsFormula formula) {
  switch (formula) {
    case FlopsFormula::kOlmoCore:
      return "olmo_core";
    case FlopsFormula::kMaxText:
      return "maxtext";
    case FlopsFormula::kExact:
      return "exact";
  }
  return "unknown";
}

Result<FlopsFormula> ParseFlopsFormula(std::string_view name) {
  for (const FlopsFormula formula : kAllFlopsFormulas) {
    if (Name(formula) == name) return formula;
  }
  return InvalidArgumentError("no FLOPs formula is called `{}`; there are: olmo_core maxtext exact",
                              name);
}

double ComputeFlopsPerToken(const Config& config, int64_t S, FlopsFormula formula) {
  const auto length = static_cast<double>(S);
  if (formula == FlopsFormula::kOlmoCore) return OlmoCore(config, length);
  const double Q = SizesOf(config).Q;
  double flops = MaxTextWeights(config);
  for (int64_t l = 0; l < config.num_layers; ++l) {
    flops += 3 * 2 * Q * TwiceMeanKeys(config, l, length, formula == FlopsFormula::kExact);
  }
  return flops;
}

}  // namespace ulmus::nn::olmo3
