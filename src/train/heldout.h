// Loss on text that is not trained on: every document of every set, cut at the sequence length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/config.h"
#include "data/instance_source.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace ulmus::train {

struct HeldOutLoss {
  std::string name;
  metrics::SumCount
      loss;  // over all targets of the set: no document and no batch weighs more than its tokens
};

// How the files of a set are read: as [data] is, but for where and how documents become instances.
data::DataConfig DataOfSet(const EvalSetTable& set, const data::DataConfig& data);

class HeldOutSets {
 public:
  // Opens the files of [[eval.sets]] with the token format of [data]. Errors as data::OpenData.
  static Result<HeldOutSets> Open(const EvalTable& config, const data::DataConfig& data);

  // Sums of all sets under the trainer's weights; in double over the calls. The last batch of a set
  // is filled up with rows that count nothing.
  Result<std::vector<HeldOutLoss>> Evaluate(Trainer& trainer) const;

  bool empty() const { return sets_.empty(); }
  int64_t num_documents() const;

 private:
  struct Set {
    std::string name;
    std::unique_ptr<data::InstanceSource> source;
  };
  std::vector<Set> sets_;
};

}  // namespace ulmus::train
