#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/table.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::train {
namespace {

using nn::olmo3::ParameterSpec;
using pjrt::ShardedArray;

Result<double> ReadScalar(const ShardedArray& array) {
  const HostTensor host = TRY(array.ToHost());
  return host.Get(0);
}

graph::ProgramOptions PrintOptions(const pjrt::Client& client) {
  return {.platform = client.platform(), .use_kernels = client.platform() == "cpu"};
}

}  // namespace

bool StepMetrics::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm) && std::isfinite(update_norm);
}

Trainer::Trainer(pjrt::Client& client, Options options, pjrt::CompilationCache* cache)
    : client_(client),
      options_(std::move(options)),
      cache_(cache),
      parameters_(nn::olmo3::Parameters(options_.model)) {
  for (const ParameterSpec& spec : parameters_)
    layer_norm_names_.insert(layer_norm_names_.end(), spec.hf_names.begin(), spec.hf_names.end());
}

Result<std::unique_ptr<Trainer>> Trainer::Create(pjrt::Client& client, Options options,
                                                 pjrt::CompilationCache* cache) {
  std::unique_ptr<Trainer> trainer(new Trainer(client, std::move(options), cache));
  const Options& o = trainer->options_;
  const Program program = TRY(StepProgram(
      o.model, o.step, o.mesh, nn::olmo3::DefaultRules(o.model, o.mesh), PrintOptions(client)));
  if (client.platform() == "cpu")
    TRY(pjrt::RegisterCustomCalls(client.plugin(), kernels::AllKernels()));
  trainer->step_ = TRY(client.Compile(program, {}, cache));
  trainer->state_.resize(static_cast<size_t>(trainer->num_state_tensors()) + 1);
  return trainer;
}

Status Trainer::Initialize(const nn::olmo3::InitOptions& init) {
  for (int64_t i = 0; i < num_parameters(); ++i) {
    const ParameterSpec& spec = parameters_[static_cast<size_t>(i)];
    const auto weight = [&](const Dims& offsets, const Shape& shape) -> Result<HostTensor> {
      HostTensor block(TensorType{DType::kF32, shape});
      nn::olmo3::FillInitial(options_.model, spec, init, offsets, block);
      return block;
    };
    const auto zeros = [&](const Dims&, const Shape& shape) -> Result<HostTensor> {
      return HostTensor(TensorType{options_.step.moments, shape});
    };
    const int64_t first = kTensorsPerParameter * i;
    SetState(first, TRY(ShardedArray::FromBlocks(client_, state_layout(first), weight)));
    for (const int64_t moment : {first + 1, first + 2})
      SetState(moment, TRY(ShardedArray::FromBlocks(client_, state_layout(moment), zeros)));
  }
  return SetAdamCount(0);
}

Result<double> Trainer::AdamCount() const { return ReadScalar(state_.back()); }

Status Trainer::SetAdamCount(double count) {
  state_.back() = TRY(UploadScalar(num_state_tensors(), count));
  return {};
}

Result<ShardedArray> Trainer::UploadTensor(const pjrt::Executable& program, int64_t argument,
                                           std::span<const std::byte> bytes) const {
  const auto& layout = program.argument_layout(argument);
  HostTensor tensor(layout->type);
  CHECK(tensor.bytes().size() == bytes.size(), "argument {}: {} bytes for {}", argument,
        bytes.size(), layout->type.ToString());
  std::ranges::copy(bytes, tensor.bytes().begin());
  return ShardedArray::FromHost(client_, tensor, layout);
}

Result<ShardedArray> Trainer::UploadScalar(int64_t argument, double value) const {
  HostTensor tensor(TensorType{DType::kF32, {}});
  tensor.Set(0, value);
  return ShardedArray::FromHost(client_, tensor, step_->argument_layout(argument));
}

Status Trainer::Upload(const data::Batch& batch) {
  int64_t argument = num_state_tensors() + 1;
  std::vector<ShardedArray> arrays;
  arrays.push_back(TRY(UploadTensor(*step_, argument++, batch.tokens.bytes())));
  arrays.push_back(TRY(UploadTensor(*step_, argument++, batch.loss_mask.bytes())));
  if (options_.step.documents)
    arrays.push_back(TRY(UploadTensor(*step_, argument++, batch.segment_ids.bytes())));
  const auto added = static_cast<double>(batch.divisor - batch.num_valid);
  arrays.push_back(TRY(UploadScalar(argument++, added)));
  batch_ = std::move(arrays);
  return {};
}

Status Trainer::Start(double lr, const optim::SkipLimits& limits) {
  CHECK(!batch_.empty(), "a step without a batch");
  int64_t argument = num_state_tensors() + 1 + static_cast<int64_t>(batch_.size());
  for (const double scalar : {lr, limits.loss, limits.grad_norm})
    batch_.push_back(TRY(UploadScalar(argument++, scalar)));
  std::vector<ShardedArray*> arguments;
  for (std::vector<ShardedArray>* group : {&state_, &batch_})
    for (ShardedArray& array : *group) arguments.push_back(&array);

  std::vector<ShardedArray> results = TRY(step_->Execute(arguments));
  batch_.clear();
  const auto state_begin = results.begin() + StepMetric::kNum,
             state_end = state_begin + static_cast<int64_t>(state_.size());
  std::move(state_begin, state_end, state_.begin());
  std::vector<ShardedArray> metrics(std::make_move_iterator(results.begin()),
                                    std::make_move_iterator(state_begin));
  metrics.insert(metrics.end(), std::make_move_iterator(state_end),
                 std::make_move_iterator(results.end()));
  pending_.push_back(std::move(metrics));
  return {};
}

Result<StepMetrics> Trainer::Finish() {
  CHECK(!pending_.empty(), "no step was started");
  const std::vector<ShardedArray> arrays = std::move(pending_.front());
  pending_.pop_front();
  const auto scalar = [&](int64_t metric) {
    return ReadScalar(arrays[static_cast<size_t>(metric)]);
  };
  StepMetrics metrics;
  metrics.loss = TRY(scalar(StepMetric::kLoss));
  metrics.z_loss = TRY(scalar(StepMetric::kZLoss));
  metrics.grad_norm = TRY(scalar(StepMetric::kGradNorm));
  metrics.update_norm = TRY(scalar(StepMetric::kUpdateNorm));
  metrics.count = static_cast<int64_t>(TRY(scalar(StepMetric::kCount)));
  metrics.applied = TRY(scalar(StepMetric::kApplied)) != 0;
  for (size_t i = StepMetric::kNum; i < arrays.size(); ++i) {
    const HostTensor norms = TRY(arrays[i].ToHost());
    for (int64_t e = 0; e < norms.num_elements(); ++e) metrics.layer_norms.push_back(norms.Get(e));
  }
  return metrics;
}

Status Trainer::CompileEvaluation() {
  StepOptions step = options_.step;
  step.global_batch = options_.eval_batch;
  step.num_microbatches = 1;
  step.forward.remat = "none";
  const Program program = TRY(EvalProgram(options_.model, step, options_.mesh,
                                          nn::olmo3::DefaultRules(options_.model, options_.mesh),
                                          PrintOptions(client_)));
  eval_ = TRY(client_.Compile(program, {}, cache_));
  return {};
}

Result<metrics::SumCount> Trainer::Evaluate(const data::Batch& batch) {
  if (!eval_) TRY(CompileEvaluation());
  std::vector<ShardedArray*> arguments;
  for (int64_t i = 0; i < num_parameters(); ++i)
    arguments.push_back(&state_[static_cast<size_t>(kTensorsPerParameter * i)]);
  int64_t argument = num_parameters();
  std::vector<ShardedArray> inputs;
  inputs.push_back(TRY(UploadTensor(*eval_, argument++, batch.tokens.bytes())));
  inputs.push_back(TRY(UploadTensor(*eval_, argument++, batch.loss_mask.bytes())));
  if (options_.step.documents)
    inputs.push_back(TRY(UploadTensor(*eval_, argument++, batch.segment_ids.bytes())));
  for (ShardedArray& input : inputs) arguments.push_back(&input);
  const std::vector<ShardedArray> results = TRY(eval_->Execute(arguments));
  const double nll = TRY(ReadScalar(results[0])), count = TRY(ReadScalar(results[1]));
  return metrics::SumCount{nll, static_cast<int64_t>(count)};
}

}  // namespace ulmus::train
