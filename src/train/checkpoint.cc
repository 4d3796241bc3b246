#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/log.h"
#include "checkpoint/element_cast.h"
#include "checkpoint/native.h"
#include "checkpoint/read_block.h"

namespace ulmus::train {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;
using nn::olmo3::ParameterSpec;

// Of one tensor of a stack, or of the parameter itself.
Shape ElementShape(const ParameterSpec& spec) {
  const Dims& dims = spec.type.shape.dims();
  return spec.stacked ? Shape(Dims(dims.begin() + 1, dims.end())) : spec.type.shape;
}

DType DTypeOf(const Trainer& trainer, int64_t part) {
  return part == 0 ? DType::kF32 : trainer.options().step.moments;
}

Status WriteParameter(const Trainer& trainer, int64_t parameter, int64_t part,
                      checkpoint::NativeWriter& writer) {
  const ParameterSpec& spec = trainer.parameters()[static_cast<size_t>(parameter)];
  const HostTensor host = TRY(trainer.state(kTensorsPerParameter * parameter + part).ToHost());
  const size_t size_bytes = host.bytes().size() / spec.hf_names.size();
  for (size_t i = 0; i < spec.hf_names.size(); ++i) {
    TRY(writer.Begin(
        {kStatePrefixes[part] + spec.hf_names[i], {DTypeOf(trainer, part), ElementShape(spec)}}));
    TRY(writer.Append(host.bytes().subspan(i * size_bytes, size_bytes)));
  }
  return {};
}

// True if the stored tensor can fill the wanted one: equal, or without the padding rows.
bool Fits(const Shape& stored, const Shape& wanted, bool may_pad) {
  if (stored == wanted) return true;
  if (!may_pad || stored.rank() != wanted.rank() || stored.dim(0) > wanted.dim(0)) return false;
  return std::equal(stored.dims().begin() + 1, stored.dims().end(), wanted.dims().begin() + 1);
}

// Embedding and head may come without padding rows.
bool MayPad(const ParameterSpec& spec) {
  return spec.kind == nn::olmo3::TensorKind::kEmbedding ||
         spec.kind == nn::olmo3::TensorKind::kHead;
}

Status CheckSource(const Trainer& trainer, const TensorSource& source, int64_t num_parts,
                   const std::string& name) {
  constexpr size_t kMaxListed = 10;
  std::vector<std::string> faults;
  for (const ParameterSpec& spec : trainer.parameters()) {
    for (const std::string& hf_name : spec.hf_names) {
      for (int64_t part = 0; part < num_parts; ++part) {
        const std::string tensor = kStatePrefixes[part] + hf_name;
        const auto index = checkpoint::FindTensor(source, tensor);
        if (!index) {
          faults.push_back(fmt::format("{} is missing", tensor));
          continue;
        }
        const TensorType& type = source.tensors()[static_cast<size_t>(*index)].type;
        if (!Fits(type.shape, ElementShape(spec), MayPad(spec)))
          faults.push_back(fmt::format("{} is {}, expected {}", tensor, type.shape.ToString(),
                                       ElementShape(spec).ToString()));
        else if (!checkpoint::CanCast(type.dtype, DTypeOf(trainer, part)))
          faults.push_back(fmt::format("{} holds {}, expected floats", tensor, Name(type.dtype)));
      }
    }
  }
  if (faults.empty()) return {};
  const size_t total = faults.size();
  faults.resize(std::min(total, kMaxListed));
  return DataLossError("{} does not hold this model's {}: {}{}; is it of another recipe?", name,
                       num_parts == 1 ? "weights" : "weights and moments", fmt::join(faults, "; "),
                       total > kMaxListed ? fmt::format("; {} more", total - kMaxListed) : "");
}

// Nothing can be learnt from weights that are not numbers.
Status CheckFinite(const std::string& tensor, DType dtype, std::span<const std::byte> bytes) {
  if (dtype != DType::kF32) return {};
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, &bytes[i], sizeof value);
    if (!std::isfinite(value))
      return DataLossError("{}: holds {}; use another checkpoint", tensor,
                           std::isnan(value) ? std::abs(value) : value);
  }
  return {};
}

// The block of one stored tensor, converted; rows that it lacks stay 0.
Status ReadElement(const TensorSource& source, const std::string& tensor, const Dims& offsets,
                   const Shape& shape, DType to, std::span<std::byte> out) {
  const auto index = checkpoint::FindTensor(source, tensor);
  const Shape& stored = source.tensors()[static_cast<size_t>(*index)].type.shape;
  Dims dims = shape.dims();
  dims[0] = std::clamp<int64_t>(stored.dim(0) - offsets[0], 0, dims[0]);
  const Shape there(dims);
  out = out.first(static_cast<size_t>(there.num_elements() * SizeBytes(to)));
  const int64_t overflows = TRY(checkpoint::ReadBlockAs(source, *index, offsets, there, to, out));
  if (overflows == 0) return CheckFinite(tensor, to, out);
  return OutOfRangeError("{}: {} values are beyond the range of {}", tensor, overflows, Name(to));
}

}  // namespace

std::vector<TensorInfo> StateTensors(const Trainer& trainer) {
  std::vector<TensorInfo> tensors;
  for (const ParameterSpec& spec : trainer.parameters())
    for (int64_t part = 0; part < kTensorsPerParameter; ++part)
      for (const std::string& hf_name : spec.hf_names)
        tensors.push_back(
            {kStatePrefixes[part] + hf_name, {DTypeOf(trainer, part), ElementShape(spec)}});
  return tensors;
}

Status SaveState(const Trainer& trainer, int64_t step, const std::string& train_state,
                 const Path& path, const SaveOptions& options) {
  const auto writer = TRY(checkpoint::NativeWriter::Create(
      path, StateTensors(trainer), {.step = step, .overwrite = options.overwrite}));
  Progress progress("save", trainer.num_parameters(), {.unit = "tensors"});
  for (int64_t i = 0; i < trainer.num_parameters(); ++i) {
    for (int64_t part = 0; part < kTensorsPerParameter; ++part)
      TRY(WriteParameter(trainer, i, part, *writer));
    progress.Add(1);
  }
  for (const auto& [name, bytes] : options.side_files) TRY(writer->AddSideFile(name, bytes));
  TRY(writer->SetTrainState(train_state));
  return writer->Commit();
}

Status RestoreState(Trainer& trainer, const TensorSource& source, RestoreParts parts,
                    const std::string& name) {
  const int64_t num_parts = parts == RestoreParts::kAll ? kTensorsPerParameter : 1;
  TRY(CheckSource(trainer, source, num_parts, name));
  Progress progress("restore", trainer.num_parameters(), {.unit = "tensors"});
  for (int64_t i = 0; i < trainer.num_parameters(); ++i) {
    const ParameterSpec& spec = trainer.parameters()[static_cast<size_t>(i)];
    for (int64_t part = 0; part < kTensorsPerParameter; ++part) {
      const DType dtype = DTypeOf(trainer, part);
      const auto block = [&](const Dims& offsets, const Shape& shape) -> Result<HostTensor> {
        if (part >= num_parts) return HostTensor(TensorType{dtype, shape});
        const auto read = [&](const std::string& hf_name, const Dims& at, const Shape& element,
                              std::span<std::byte> out) {
          return ReadElement(source, kStatePrefixes[part] + hf_name, at, element, dtype, out);
        };
        return checkpoint::ReadStack(spec.hf_names, spec.stacked, dtype, offsets, shape, read);
      };
      const int64_t index = kTensorsPerParameter * i + part;
      trainer.SetState(index, TRY(pjrt::ShardedArray::FromBlocks(
                                  trainer.client(), trainer.state_layout(index), block)));
    }
    progress.Add(1);
  }
  return {};
}

}  // namespace ulmus::train
