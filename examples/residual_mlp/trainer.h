// Runs the programs of model.h: state on the devices, one step at a time, nothing waits but the
// metrics.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "pjrt/cache.h"
#include "pjrt/client.h"
#include "residual_mlp/config.h"
#include "residual_mlp/text.h"

namespace ulmus::residual_mlp {

struct StepMetrics {
  int64_t step = 0;  // 1 is the first
  double loss = 0;   // nats per byte, before the update
  double grad_norm = 0;
};

// Must not outlive the client.
class Trainer {
 public:
  // Compiles (or takes from `cache`, if given) and fills the state from the seed, the same values
  // on any mesh.
  static Result<std::unique_ptr<Trainer>> Create(pjrt::Client& client, const Config& config,
                                                 pjrt::CompilationCache* cache = nullptr);

  // Starts step k and returns the metrics of step k - 1, if there was one: the device never waits
  // for the host.
  Result<std::optional<StepMetrics>> Step(const TextBatch& batch);
  // Metrics of the last step; waits for it.
  Result<std::optional<StepMetrics>> Finish();
  // Loss of a batch under the current weights. Compiled at the first call.
  Result<double> Evaluate(const TextBatch& batch);

  int64_t step() const { return step_; }
  const pjrt::Executable& executable() const { return *train_; }
  // Weight, exp_avg, exp_avg_sq of each parameter, in the order of Parameters().
  std::vector<pjrt::ShardedArray>& state() { return state_; }

 private:
  Trainer(pjrt::Client& client, const Config& config, pjrt::CompilationCache* cache)
      : client_(client), config_(config), cache_(cache) {}
  Status InitializeState();
  Result<pjrt::ShardedArray> Upload(const HostTensor& tensor, int64_t argument) const;
  double LearningRate() const;

  pjrt::Client& client_;
  Config config_;
  pjrt::CompilationCache* cache_;
  std::unique_ptr<pjrt::Executable> train_, eval_;
  std::vector<pjrt::ShardedArray> state_;
  int64_t step_ = 0;
  struct Pending {
    int64_t step;
    pjrt::ShardedArray loss, grad_norm;
  };
  std::optional<Pending> pending_;
};

}  // namespace ulmus::residual_mlp
