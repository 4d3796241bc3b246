// The device's side of training: the state, the compiled programs, one step at a time. Knows
// neither files nor schedules.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/batch.h"
#include "metrics/sum_count.h"
#include "nn/olmo3/init.h"
#include "nn/olmo3/parameters.h"
#include "optim/skip_step.h"
#include "pjrt/client.h"
#include "train/step_program.h"

namespace ulmus::train {

// What the program says about one step (StepMetric).
struct StepMetrics {
  double loss = 0;         // nats per target
  double z_loss = 0;       // weighted
  double grad_norm = 0;    // before clipping
  double update_norm = 0;  // 0 if the step was left out
  int64_t count = 0;       // targets
  bool applied = false;
  std::vector<double> layer_norms;  // as layer_norm_names(); empty unless asked for

  bool finite() const;  // loss, gradient norm and update norm
};

// One thread. Must not outlive the client.
class Trainer {
 public:
  struct Options {
    nn::olmo3::Config model;
    StepOptions step;
    int64_t eval_batch = 0;  // instances of one evaluation call
    Mesh mesh = {};
  };
  // Compiles the step program, or takes it from `cache` if there is one. The state is empty until
  // it is initialised or restored (train/checkpoint.h).
  static Result<std::unique_ptr<Trainer>> Create(pjrt::Client& client, Options options,
                                                 pjrt::CompilationCache* cache);

  // Weights as drawn, moments 0: the same on any mesh.
  Status Initialize(const nn::olmo3::InitOptions& init);

  // Sends the batch of the next step; the batch may be reused on return.
  Status Upload(const data::Batch& batch);
  // Starts the step of the uploaded batch and returns at once.
  Status Start(double lr, const optim::SkipLimits& limits);
  // Steps started whose metrics have not been asked for.
  int64_t num_pending() const { return static_cast<int64_t>(pending_.size()); }
  // Metrics of the oldest of those; waits for that step only.
  Result<StepMetrics> Finish();

  // -ln p of all targets of a batch of `eval_batch` rows under the current weights, nats.
  Result<metrics::SumCount> Evaluate(const data::Batch& batch);

  // The state, to be saved and restored: tensors 3*i, 3*i+1 and 3*i+2 are weight, exp_avg and
  // exp_avg_sq of parameters()[i]. Step and save wait for each other by themselves.
  const std::vector<nn::olmo3::ParameterSpec>& parameters() const { return parameters_; }
  const pjrt::ShardedArray& state(int64_t index) const {
    return state_[static_cast<size_t>(index)];
  }
  const std::shared_ptr<const pjrt::ArrayLayout>& state_layout(int64_t index) const {
    return step_->argument_layout(index);
  }
  void SetState(int64_t index, pjrt::ShardedArray array) {
    state_[static_cast<size_t>(index)] = std::move(array);
  }
  int64_t num_state_tensors() const { return kTensorsPerParameter * num_parameters(); }
  int64_t num_parameters() const { return static_cast<int64_t>(parameters_.size()); }
  // Updates applied since the moments began. Waits for the last step.
  Result<double> AdamCount() const;
  Status SetAdamCount(double count);

  const Options& options() const { return options_; }
  pjrt::Client& client() const { return client_; }
  const pjrt::Executable& step_executable() const { return *step_; }
  // Hugging Face names, in the order of StepMetrics::layer_norms.
  const std::vector<std::string>& layer_norm_names() const { return layer_norm_names_; }

 private:
  Trainer(pjrt::Client& client, Options options, pjrt::CompilationCache* cache);
  Result<pjrt::ShardedArray> UploadTensor(const pjrt::Executable& program, int64_t argument,
                                          std::span<const std::byte> bytes) const;
  Result<pjrt::ShardedArray> UploadScalar(int64_t argument, double value) const;
  Status CompileEvaluation();

  pjrt::Client& client_;
  Options options_;
  pjrt::CompilationCache* cache_;
  std::vector<nn::olmo3::ParameterSpec> parameters_;
  std::vector<std::string> layer_norm_names_;
  std::unique_ptr<pjrt::Executable> step_, eval_;
  std::vector<pjrt::ShardedArray> state_;  // 3 per parameter, then the count
  std::vector<pjrt::ShardedArray> batch_;  // of the next step: what StepProgram lists up to `lr`
  std::deque<std::vector<pjrt::ShardedArray>> pending_;  // metrics, oldest first
};

}  // namespace ulmus::train
