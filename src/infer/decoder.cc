#include "infer/decoder.h"

#include <algorithm>

#include "nn/olmo3/decode.h"

namespace ulmus::infer {
namespace {

// Of every row's tokens the part from `first` on that fits one chunk.
std::span<const int32_t> Part(const std::vector<int32_t>& tokens, int64_t first, int64_t chunk) {
  const int64_t left = std::max<int64_t>(0, static_cast<int64_t>(tokens.size()) - first);
  if (left == 0) return {};
  return std::span(tokens).subspan(static_cast<size_t>(first),
                                   static_cast<size_t>(std::min(left, chunk)));
}

HostTensor Ints(const std::vector<int64_t>& values) {
  HostTensor tensor(TensorType{DType::kI32, {static_cast<int64_t>(values.size())}});
  std::ranges::transform(values, tensor.values<int32_t>().begin(),
                         [](int64_t value) { return static_cast<int32_t>(value); });
  return tensor;
}

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::Create(pjrt::Client& client,
                                                 const nn::olmo3::Config& config,
                                                 std::vector<pjrt::ShardedArray>& weights,
                                                 const DecoderOptions& options,
                                                 pjrt::CompilationCache* cache) {
  auto decoder = std::unique_ptr<Decoder>(new Decoder(client, config, weights, options));
  const auto compile = [&](int64_t chunk) -> Result<std::unique_ptr<pjrt::Executable>> {
    const auto graph = nn::olmo3::DecodeGraph(config, {.batch = options.batch,
                                                       .chunk = chunk,
                                                       .max_chunk = options.chunk,
                                                       .max_length = options.max_length,
                                                       .dtype = options.dtype,
                                                       .all_logits = false,
                                                       .mesh = options.mesh});
    auto executable = TRY(Compile(client, *graph, cache));
    decoder->compile_s_ += executable->compile_s();
    return executable;
  };
  if (options.chunk > 1) decoder->prefill_ = TRY(compile(options.chunk));
  decoder->decode_ = TRY(compile(1));
  TRY(decoder->MakeCache());
  return decoder;
}

Status Decoder::MakeCache() {
  const auto tensors = nn::olmo3::DecodeCache(config_, options_.dtype, options_.batch,
                                              options_.max_length, options_.chunk);
  const auto shardings = nn::olmo3::DecodeCacheShardings(config_, options_.mesh, options_.batch);
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto layout = TRY(pjrt::ArrayLayout::Create(tensors[i].type, options_.mesh, shardings[i]));
    const auto zeros = [&](const Dims&, const Shape& shape) -> Result<HostTensor> {
      return HostTensor(TensorType{options_.dtype, shape});
    };
    cache_.push_back(TRY(pjrt::ShardedArray::FromBlocks(client_, std::move(layout), zeros)));
  }
  return {};
}

void Decoder::Restart() { std::ranges::fill(lengths_, 0); }

Status Decoder::CheckTokens(std::span<const std::vector<int32_t>> tokens) const {
  if (static_cast<int64_t>(tokens.size()) != options_.batch)
    return InvalidArgumentError("tokens for {} sequences, expected {}", tokens.size(),
                                options_.batch);
  for (size_t b = 0; b < tokens.size(); ++b) {
    const int64_t length = lengths_[b] + static_cast<int64_t>(tokens[b].size());
    if (length > options_.max_length)
      return InvalidArgumentError("sequence {} would have {} tokens, at most {} fit", b, length,
                                  options_.max_length);
    for (const int32_t id : tokens[b]) {
      if (id < 0 || id >= config_.vocab_size)
        return InvalidArgumentError("sequence {}: token id {} is outside the vocabulary, 0 to {}",
                                    b, id, config_.vocab_size - 1);
    }
  }
  return {};
}

Result<HostTensor> Decoder::Append(std::span<const std::vector<int32_t>> tokens) {
  TRY(CheckTokens(tokens));
  size_t longest = 0;
  for (const auto& row : tokens) longest = std::max(longest, row.size());
  const auto total = static_cast<int64_t>(longest);
  HostTensor logits(TensorType{DType::kF32, {options_.batch, config_.vocab_size}});
  for (int64_t first = 0; first < total;) {
    const bool one = total - first == 1 || prefill_ == nullptr;
    const int64_t chunk = one ? 1 : options_.chunk;
    const HostTensor now = TRY(Run(one ? *decode_ : *prefill_, chunk, first, tokens));
    // A row's logits come from the call that appended its last token.
    for (size_t b = 0; b < tokens.size(); ++b) {
      const int64_t end = static_cast<int64_t>(tokens[b].size());
      if (end <= first || end > first + chunk) continue;
      const auto V = static_cast<size_t>(config_.vocab_size);
      std::ranges::copy(now.values<float>().subspan(b * V, V),
                        logits.values<float>().subspan(b * V, V).begin());
    }
    first += chunk;
  }
  return logits;
}

Result<HostTensor> Decoder::Run(pjrt::Executable& program, int64_t chunk, int64_t first,
                                std::span<const std::vector<int32_t>> tokens) {
  HostTensor ids(TensorType{DType::kI32, {options_.batch, chunk}});
  std::vector<int64_t> counts;
  for (size_t b = 0; b < tokens.size(); ++b) {
    const auto part = Part(tokens[b], first, chunk);
    std::ranges::copy(
        part, ids.values<int32_t>().subspan(b * static_cast<size_t>(chunk), part.size()).begin());
    counts.push_back(static_cast<int64_t>(part.size()));
  }
  const int64_t num_cached = static_cast<int64_t>(weights_.size() + cache_.size());
  std::vector<pjrt::ShardedArray> inputs;
  int64_t next = num_cached;
  for (const HostTensor& tensor : {ids.Clone(), Ints(lengths_), Ints(counts)})
    inputs.push_back(
        TRY(pjrt::ShardedArray::FromHost(client_, tensor, program.argument_layout(next++))));
  std::vector<pjrt::ShardedArray*> args;
  for (auto* arrays : {&weights_, &cache_, &inputs})
    for (pjrt::ShardedArray& array : *arrays) args.push_back(&array);
  std::vector<pjrt::ShardedArray> results = TRY(program.Execute(args));
  for (size_t i = 0; i < cache_.size(); ++i) cache_[i] = std::move(results[i + 1]);
  for (size_t b = 0; b < counts.size(); ++b) lengths_[b] += counts[b];
  return results[0].ToHost();
}

}  // namespace ulmus::infer
