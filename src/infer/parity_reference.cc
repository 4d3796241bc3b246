#include "infer/parity_reference.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/safetensors_file.h"

namespace ulmus::infer {
namespace {

using checkpoint::TensorInfo;
using nn::olmo3::Config;

constexpr int64_t kMaxTokens = int64_t{1} << 28;  // of a parity file; logits are far larger

// Widths after [B,T] of an intermediate tensor: several spellings of one thing, the first is named
// in messages.
std::vector<Dims> WidthsOf(const Config& c, const std::string& name) {
  const auto heads = [&](int64_t n) {
    return std::vector<Dims>{{n, c.head_dim}, {n * c.head_dim}};
  };
  if (name.ends_with(".q_rope")) return heads(c.num_heads);
  if (name.ends_with(".k_rope")) return heads(c.num_kv_heads);
  if (name.ends_with(".q_norm")) return {{c.num_heads * c.head_dim}};
  if (name.ends_with(".k_norm")) return {{c.num_kv_heads * c.head_dim}};
  return {{c.hidden_size}};
}

Shape WithWidth(int64_t B, int64_t T, const Dims& width) {
  Dims dims = {B, T};
  dims.insert(dims.end(), width.begin(), width.end());
  return Shape(dims);
}

// Integer tensors are small; read whole, element by element.
template <class T>
Status ReadInts(const checkpoint::TensorSource& source, int64_t index, std::vector<int64_t>& out) {
  std::vector<T> values(out.size());
  TRY(source.Read(index, 0, std::as_writable_bytes(std::span(values))));
  std::ranges::copy(values, out.begin());
  return {};
}

}  // namespace

Result<TokenBatch> ReadTokens(const checkpoint::TensorSource& source, const Path& path) {
  const auto index = checkpoint::FindTensor(source, "tokens");
  if (!index) {
    return InvalidArgumentError(
        "{}: no tensor `tokens`, expected i64 [B,T]; see docs/formats/parity_file.md",
        path.string());
  }
  const TensorType& type = source.tensors()[static_cast<size_t>(*index)].type;
  const int64_t rank = type.shape.rank(), count = type.shape.num_elements();
  if ((type.dtype != DType::kI64 && type.dtype != DType::kI32) || (rank != 1 && rank != 2) ||
      count < 1 || count > kMaxTokens) {
    return InvalidArgumentError("{}: tokens is {}, expected i64 or i32 [B,T] with 1 to {} elements",
                                path.string(), type.ToString(), kMaxTokens);
  }
  std::vector<int64_t> ids(static_cast<size_t>(count));
  TRY(type.dtype == DType::kI64 ? ReadInts<int64_t>(source, *index, ids)
                                : ReadInts<int32_t>(source, *index, ids));
  TokenBatch batch{.length = type.shape.dim(-1), .sequences = {}};
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > std::numeric_limits<int32_t>::max())
      return InvalidArgumentError("{}: tokens: element {} is {}, no token id", path.string(), i,
                                  ids[i]);
    if (i % static_cast<size_t>(batch.length) == 0) batch.sequences.emplace_back();
    batch.sequences.back().push_back(static_cast<int32_t>(ids[i]));
  }
  return batch;
}

Result<std::unique_ptr<ParityFile>> ParityFile::Open(const Path& path, const Config& config) {
  auto file = std::make_unique<ParityFile>();
  file->source_ = TRY(checkpoint::SafetensorsSource::Open(path));
  file->tokens_ = TRY(ReadTokens(*file->source_, path));
  TRY(file->CheckLogits(path, config));
  TRY(file->CheckIntermediates(path, config));
  return file;
}

Status ParityFile::CheckLogits(const Path& path, const Config& config) {
  const auto index = checkpoint::FindTensor(*source_, "logits");
  if (!index)
    return InvalidArgumentError(
        "{}: no tensor `logits`, expected f32 [B,T,V]; see "
        "docs/formats/parity_file.md",
        path.string());
  const TensorType& type = source_->tensors()[static_cast<size_t>(*index)].type;
  Shape expected{static_cast<int64_t>(tokens_.sequences.size()), tokens_.length, config.vocab_size};
  const Shape one{tokens_.length, config.vocab_size};
  const bool fits = type.shape == expected || (expected.dim(0) == 1 && type.shape == one);
  if (!IsFloat(type.dtype) || !fits) {
    return InvalidArgumentError(
        "{}: logits is {}, expected f32{} for these tokens and a vocabulary of {}", path.string(),
        type.ToString(), expected.ToString(), config.vocab_size);
  }
  logits_ = *index;
  vocab_size_ = config.vocab_size;
  return {};
}

Status ParityFile::CheckIntermediates(const Path& path, const Config& config) {
  const auto known = IntermediateNames(config);
  const auto B = static_cast<int64_t>(tokens_.sequences.size());
  for (const TensorInfo& info : source_->tensors()) {
    if (info.name == "tokens" || info.name == "logits") continue;
    if (std::ranges::find(known, info.name) == known.end()) {
      return InvalidArgumentError(
          "{}: tensor `{}` is not known; intermediate tensors are `{}`, `{}` and so on, see "
          "docs/formats/parity_file.md",
          path.string(), info.name, known[0], known[1]);
    }
    const auto widths = WidthsOf(config, info.name);
    const bool fits = std::ranges::any_of(widths, [&](const Dims& width) {
      return info.type.shape == WithWidth(B, tokens_.length, width);
    });
    if (!IsFloat(info.type.dtype) || !fits) {
      return InvalidArgumentError("{}: {} is {}, expected f32{}", path.string(), info.name,
                                  info.type.ToString(),
                                  WithWidth(B, tokens_.length, widths[0]).ToString());
    }
  }
  for (const std::string& name : known)
    if (checkpoint::FindTensor(*source_, name)) intermediates_.push_back(name);
  return {};
}

Status ParityFile::SetSequence(int64_t b, std::span<const int32_t>) {
  sequence_ = b;
  return {};
}

Result<HostTensor> ParityFile::ReadFloats(int64_t index, int64_t first, Shape shape) const {
  const DType stored = source_->tensors()[static_cast<size_t>(index)].type.dtype;
  HostTensor tensor(TensorType{DType::kF32, std::move(shape)});
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.num_elements() * SizeBytes(stored)));
  TRY(source_->Read(index, first, bytes));
  checkpoint::CastElements(stored, DType::kF32, bytes, tensor.bytes());
  return tensor;
}

Result<HostTensor> ParityFile::Logits(int64_t first, int64_t n) {
  return ReadFloats(logits_, (sequence_ * tokens_.length + first) * vocab_size_, {n, vocab_size_});
}

Result<HostTensor> ParityFile::Intermediate(const std::string& name, int64_t length) {
  const auto index = checkpoint::FindTensor(*source_, name);
  if (!index) return NotFoundError("{}: not in the parity file", name);
  const Shape& shape = source_->tensors()[static_cast<size_t>(*index)].type.shape;
  const int64_t size = shape.num_elements() / shape.dim(0);
  return ReadFloats(*index, sequence_ * size, {length, size / tokens_.length});
}

Result<HostTensor> ModelReference::Logits(int64_t first, int64_t n) {
  HostTensor logits = TRY(model_.Logits(first));
  CHECK(logits.shape().dim(0) == n, "{} rows of logits, expected {}", logits.shape().dim(0), n);
  return logits;
}

std::vector<std::string> ModelReference::Intermediates() const {
  return model_.options().intermediates ? IntermediateNames(config_) : std::vector<std::string>();
}

Result<ParityReport> CompareModels(SequenceModel& ours, ParityReference& reference,
                                   const TokenBatch& tokens, double intermediate_limit) {
  if (reference.vocab_size() != ours.vocab_size()) {
    return InvalidArgumentError(
        "the reference has {} tokens in its vocabulary, the checkpoint {}; compare the same model",
        reference.vocab_size(), ours.vocab_size());
  }
  ParityAccumulator logits;
  std::vector<TensorAccumulator> tensors;
  std::vector<std::string> names;
  if (ours.options().intermediates) names = reference.Intermediates();
  for (const std::string& name : names) tensors.emplace_back(name, intermediate_limit);
  const auto B = static_cast<int64_t>(tokens.sequences.size());
  Progress progress("compare", B * tokens.length, {.unit = "positions"});
  for (int64_t b = 0; b < B; ++b) {
    const auto& sequence = tokens.sequences[static_cast<size_t>(b)];
    TRY(ours.SetTokens(sequence));
    TRY(reference.SetSequence(b, sequence));
    for (size_t i = 0; i < names.size(); ++i) {
      const HostTensor theirs = TRY(reference.Intermediate(names[i], tokens.length));
      const HostTensor mine = TRY(ours.Intermediate(names[i]));
      tensors[i].Add(b, tokens.length, theirs.values<float>(), mine.values<float>());
    }
    for (int64_t t = 0; t < tokens.length;) {
      const HostTensor mine = TRY(ours.Logits(t));
      const int64_t n = mine.shape().dim(0);
      const HostTensor theirs = TRY(reference.Logits(t, n));
      const auto V = static_cast<size_t>(ours.vocab_size());
      for (int64_t i = 0; i < n; ++i) {
        const size_t row = static_cast<size_t>(i) * V;
        TRY(logits.Add({b, t + i}, theirs.values<float>().subspan(row, V),
                       mine.values<float>().subspan(row, V)));
      }
      t += n;
      progress.Add(n);
    }
  }
  ParityReport report{.stats = logits.Stats(), .tensors = {}};
  for (const TensorAccumulator& tensor : tensors) report.tensors.push_back(tensor.Result());
  return report;
}

}  // namespace ulmus::infer
