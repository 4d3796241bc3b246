#include "residual_mlp/trainer.h"

#include <algorithm>

#include "base/random.h"
#include "residual_mlp/model.h"

namespace ulmus::residual_mlp {
namespace {

HostTensor Scalar(double value) {
  HostTensor t(TensorType{DType::kF32, {}});
  t.Set(0, value);
  return t;
}

// The block of a parameter at `offsets`: element i of the whole tensor is element i of the
// parameter's random stream, whoever asks for it.
HostTensor InitialBlock(const ParameterSpec& spec, uint64_t seed, const Dims& offsets,
                        const Shape& shape) {
  HostTensor block(TensorType{spec.type.dtype, shape});
  const std::span<float> values = block.values<float>();
  if (spec.init_stddev == 0) {
    std::fill(values.begin(), values.end(), 1.0f);
    return block;
  }
  const RandomStream stream(seed, 0, "init", spec.name);
  const Dims strides = spec.type.shape.Strides();
  const auto row = static_cast<size_t>(shape.dim(-1));
  for (size_t start = 0; start < values.size(); start += row) {  // one contiguous row at a time
    auto rest = static_cast<int64_t>(start / row);
    int64_t first = offsets.back();
    for (size_t d = offsets.size() - 1; d-- > 0;) {
      first += (offsets[d] + rest % shape.dims()[d]) * strides[d];
      rest /= shape.dims()[d];
    }
    FillNormal(stream, static_cast<uint64_t>(first), {.mean = 0, .stddev = spec.init_stddev},
               values.subspan(start, row));
  }
  return block;
}

Result<double> ReadScalar(const pjrt::ShardedArray& array) {
  const HostTensor host = TRY(array.ToHost());
  return host.Get(0);
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::Create(pjrt::Client& client, const Config& config,
                                                 pjrt::CompilationCache* cache) {
  TRY(ValidateConfig(config));
  std::unique_ptr<Trainer> trainer(new Trainer(client, config, cache));
  trainer->train_ = TRY(client.Compile(TrainStep(config), {}, cache));
  TRY(trainer->InitializeState());
  return trainer;
}

Status Trainer::InitializeState() {
  int64_t argument = 0;
  for (const ParameterSpec& spec : Parameters(config_)) {
    const auto seed = static_cast<uint64_t>(config_.train.seed);
    const auto weight = [&](const Dims& offsets, const Shape& shape) -> Result<HostTensor> {
      return InitialBlock(spec, seed, offsets, shape);
    };
    const auto zeros = [&](const Dims&, const Shape& shape) -> Result<HostTensor> {
      return HostTensor(TensorType{spec.type.dtype, shape});
    };
    state_.push_back(
        TRY(pjrt::ShardedArray::FromBlocks(client_, train_->argument_layout(argument++), weight)));
    for (int moment = 0; moment < 2; ++moment) {
      state_.push_back(
          TRY(pjrt::ShardedArray::FromBlocks(client_, train_->argument_layout(argument++), zeros)));
    }
  }
  return {};
}

Result<pjrt::ShardedArray> Trainer::Upload(const HostTensor& tensor, int64_t argument) const {
  return pjrt::ShardedArray::FromHost(client_, tensor, train_->argument_layout(argument));
}

double Trainer::LearningRate() const {
  const auto step = static_cast<double>(step_),
             warmup = static_cast<double>(config_.optim.warmup_steps);
  return config_.optim.lr * (step < warmup ? step / warmup : 1.0);
}

Result<std::optional<StepMetrics>> Trainer::Step(const TextBatch& batch) {
  ++step_;
  const auto first = static_cast<int64_t>(state_.size());
  pjrt::ShardedArray tokens = TRY(Upload(batch.tokens, first)),
                     labels = TRY(Upload(batch.labels, first + 1)),
                     lr = TRY(Upload(Scalar(LearningRate()), first + 2)),
                     adam_step = TRY(Upload(Scalar(static_cast<double>(step_)), first + 3));
  std::vector<pjrt::ShardedArray*> arguments;
  for (pjrt::ShardedArray& array : state_) arguments.push_back(&array);
  arguments.insert(arguments.end(), {&tokens, &labels, &lr, &adam_step});
  std::vector<pjrt::ShardedArray> results = TRY(train_->Execute(arguments));
  std::optional<StepMetrics> before = TRY(Finish());
  pending_ = Pending{step_, std::move(results[0]), std::move(results[1])};
  std::move(results.begin() + kFirstStateResult, results.end(), state_.begin());
  return before;
}

Result<std::optional<StepMetrics>> Trainer::Finish() {
  if (!pending_) return std::optional<StepMetrics>();
  const Pending pending = *std::exchange(pending_, std::nullopt);
  return std::optional(
      StepMetrics{pending.step, TRY(ReadScalar(pending.loss)), TRY(ReadScalar(pending.grad_norm))});
}

Result<double> Trainer::Evaluate(const TextBatch& batch) {
  if (!eval_) eval_ = TRY(client_.Compile(EvalLoss(config_), {}, cache_));
  const auto first = static_cast<int64_t>(state_.size());
  pjrt::ShardedArray tokens = TRY(Upload(batch.tokens, first)),
                     labels = TRY(Upload(batch.labels, first + 1));
  std::vector<pjrt::ShardedArray*> arguments;
  for (size_t i = 0; i < state_.size(); i += 3)
    arguments.push_back(&state_[i]);  // weights without moments
  arguments.insert(arguments.end(), {&tokens, &labels});
  const std::vector<pjrt::ShardedArray> results = TRY(eval_->Execute(arguments));
  TRY(eval_->Wait());
  return ReadScalar(results[0]);
}

}  // namespace ulmus::residual_mlp
