#include "nn/olmo3/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace ulmus::nn::olmo3 {
namespace {

constexpr double kOlmoCoreBound = 3;  // OLMo-core: a = -3 std, b = 3 std
constexpr double kMaxTextBound = 2;   // jax.nn.initializers.truncated_normal

// Standard deviation of the standard normal cut at `bound` on both sides.
double CutStddev(double bound) {
  const double density = std::exp(-bound * bound / 2) / std::sqrt(2 * std::numbers::pi);
  return std::sqrt(1 - 2 * bound * density / std::erf(bound / std::numbers::sqrt2));
}

InitDistribution FanIn(int64_t fan_in, double bound) {
  const double stddev = 1 / std::sqrt(static_cast<double>(fan_in));
  return {.mean = 0, .stddev = bound > 0 ? stddev / CutStddev(bound) : stddev, .bound = bound};
}

// Fills runs of one stream.
class Filler {
 public:
  Filler(const InitDistribution& distribution, const InitOptions& options, std::string_view name)
      : distribution_(distribution), stream_(options.seed, 0, "init", name) {
    if (distribution.bound > 0) {
      cut_.emplace(Normal{distribution.mean, distribution.stddev}, distribution.bound);
    }
  }
  void Fill(int64_t first, std::span<float> values) const {
    const auto index = static_cast<uint64_t>(first);
    if (cut_) {
      FillTruncatedNormal(stream_, index, *cut_, values);
    } else if (distribution_.stddev > 0) {
      FillNormal(stream_, index, {distribution_.mean, distribution_.stddev}, values);
    } else {
      std::ranges::fill(values, static_cast<float>(distribution_.mean));
    }
  }

 private:
  InitDistribution distribution_;
  RandomStream stream_;
  std::optional<TruncatedNormal> cut_;
};

}  // namespace

Result<InitStyle> ParseInitStyle(std::string_view name) {
  for (const InitStyle style : {InitStyle::kOlmoCore, InitStyle::kMaxText}) {
    if (Name(style) == name) return style;
  }
  return InvalidArgumentError("no initialisation is called `{}`; there are: olmo_core maxtext",
                              name);
}

std::string_view Name(InitStyle style) {
  return style == InitStyle::kOlmoCore ? "olmo_core" : "maxtext";
}

double InitDistribution::EffectiveStddev() const {
  return bound > 0 ? stddev * CutStddev(bound) : stddev;
}

InitDistribution DistributionOf(const Config& config, TensorKind kind, InitStyle style) {
  if (IsNorm(kind)) return {.mean = 1, .stddev = 0, .bound = 0};
  if (style == InitStyle::kOlmoCore) {
    return {.mean = 0, .stddev = config.initializer_range, .bound = kOlmoCoreBound};
  }
  const int64_t D = config.hidden_size;
  switch (kind) {
    case TensorKind::kEmbedding:
    case TensorKind::kQProj:
    case TensorKind::kKProj:
    case TensorKind::kVProj:
      return FanIn(D, 0);
    case TensorKind::kOProj:
      return FanIn(config.num_heads * config.head_dim, 0);
    case TensorKind::kDownProj:
      return FanIn(config.intermediate_size, kMaxTextBound);
    default:
      return FanIn(D, kMaxTextBound);
  }
}

void FillInitial(const Config& config, const ParameterSpec& spec, const InitOptions& options,
                 const Dims& offsets, HostTensor& block) {
  const int64_t rank = spec.type.shape.rank();
  CHECK(block.dtype() == DType::kF32 && block.shape().rank() == rank &&
            static_cast<int64_t>(offsets.size()) == rank,
        "{}: block {} of {}", spec.name, block.type().ToString(), spec.type.ToString());
  const InitDistribution distribution = DistributionOf(config, spec.kind, options.style);
  const Dims strides = spec.type.shape.Strides();
  const int64_t run = block.shape().dim(-1);
  const int64_t per_tensor = spec.stacked ? spec.type.shape.num_elements() / spec.type.shape.dim(0)
                                          : spec.type.shape.num_elements();
  int64_t stream_of = -1;
  std::optional<Filler> filler;
  // Runs along the last axis are contiguous in the parameter too.
  Dims index(static_cast<size_t>(rank), 0);
  for (int64_t done = 0; done < block.num_elements(); done += run) {
    int64_t flat = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      flat += (offsets[axis] + index[axis]) * strides[axis];
    }
    const int64_t tensor = flat / per_tensor;
    if (tensor != stream_of) {
      filler.emplace(distribution, options, spec.hf_names[static_cast<size_t>(tensor)]);
      stream_of = tensor;
    }
    filler->Fill(
        flat - tensor * per_tensor,
        block.values<float>().subspan(static_cast<size_t>(done), static_cast<size_t>(run)));
    for (int64_t axis = rank - 2; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < block.shape().dim(axis)) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
}

HostTensor InitialParameter(const Config& config, const ParameterSpec& spec,
                            const InitOptions& options) {
  HostTensor tensor(spec.type);
  FillInitial(config, spec, options, Dims(static_cast<size_t>(spec.type.shape.rank()), 0), tensor);
  return tensor;
}

std::vector<InitRow> InitTable(const Config& config, const InitOptions& options,
                               int64_t max_elements) {
  const std::vector<ParameterSpec> specs = Parameters(config);
  std::vector<InitRow> rows;
  std::vector<float> values;
  for (const HfTensor& tensor : HfTensors(config)) {
    const TensorKind kind = specs[static_cast<size_t>(tensor.parameter)].kind;
    const InitDistribution distribution = DistributionOf(config, kind, options.style);
    int64_t n = tensor.shape.num_elements();
    if (max_elements > 0) n = std::min(n, max_elements);
    const Filler filler(distribution, options, tensor.name);
    constexpr int64_t kChunk = 1 << 16;
    double sum = 0, squares = 0;
    for (int64_t first = 0; first < n; first += kChunk) {
      values.resize(static_cast<size_t>(std::min(kChunk, n - first)));
      filler.Fill(first, values);
      for (const float v : values) {
        const double centred = static_cast<double>(v) - distribution.mean;
        sum += centred;
        squares += centred * centred;
      }
    }
    const double offset = sum / static_cast<double>(n);
    rows.push_back({.name = tensor.name,
                    .shape = tensor.shape,
                    .mean = distribution.mean + offset,
                    .stddev = std::sqrt(squares / static_cast<double>(n) - offset * offset),
                    .expected_stddev = distribution.EffectiveStddev()});
  }
  return rows;
}

std::string FormatInitTable(const std::vector<InitRow>& rows) {
  size_t width = 6;
  for (const InitRow& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}}  {:>16}  {:>10}  {:>10}  {:>10}\n", "tensor", width,
                                 "shape", "mean", "std", "expected");
  for (const InitRow& row : rows) {
    text += fmt::format("{:<{}}  {:>16}  {:>10.6f}  {:>10.6f}  {:>10.6f}\n", row.name, width,
                        row.shape.ToString(), row.mean, row.stddev, row.expected_stddev);
  }
  return text;
}

}  // namespace ulmus::nn::olmo3
