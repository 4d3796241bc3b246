// Initial weights as pure functions of (seed, tensor, element): any block of any tensor can be
// filled on its own, so the values do not depend on how they are sharded or grouped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nn/olmo3/parameters.h"
#include "tensor/host_tensor.h"

namespace ulmus::nn::olmo3 {

enum class InitStyle {
  // Every matrix, embedding and head: normal of std initializer_range cut at 3 std. Source:
  // OLMo-core InitMethod.normal.
  kOlmoCore,
  // q, k, v, o normal of variance 1/fan_in; MLP and head normal cut at 2 std and rescaled to that
  // variance; embedding normal of std 1/sqrt(D). Source: MaxText initializers.nd_dense_init.
  kMaxText,
};
// "olmo_core", "maxtext"; kInvalidArgument lists them.
Result<InitStyle> ParseInitStyle(std::string_view name);
std::string_view Name(InitStyle style);

struct InitOptions {
  InitStyle style = InitStyle::kOlmoCore;
  uint64_t seed = 0;
};

// How one kind of tensor is drawn. Norms: mean 1, std 0.
struct InitDistribution {
  double mean = 0;
  double stddev = 0;  // before the cut
  double bound = 0;   // cut at this many stddev; 0: not cut

  // Of the values as drawn.
  double EffectiveStddev() const;
};
InitDistribution DistributionOf(const Config& config, TensorKind kind, InitStyle style);

// The block of parameter `spec` that starts at `offsets` and has the shape of `block` (f32, as many
// axes). Padding rows are drawn like the others, as in OLMo-core. Stream of each element: its
// Hugging Face tensor's name and its place in there.
void FillInitial(const Config& config, const ParameterSpec& spec, const InitOptions& options,
                 const Dims& offsets, HostTensor& block);
// All of a parameter.
HostTensor InitialParameter(const Config& config, const ParameterSpec& spec,
                            const InitOptions& options);

// What was drawn, per Hugging Face tensor.
struct InitRow {
  std::string name;
  Shape shape;
  double mean = 0, stddev = 0, expected_stddev = 0;
};
// Statistics over at most `max_elements` first elements of each tensor (0: all).
std::vector<InitRow> InitTable(const Config& config, const InitOptions& options,
                               int64_t max_elements = 0);
// Aligned columns, one line per tensor and a heading.
std::string FormatInitTable(const std::vector<InitRow>& rows);

}  // namespace ulmus::nn::olmo3
