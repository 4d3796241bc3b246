#include "train/heldout.h"

#include <numeric>
#include <utility>

#include "base/log.h"
#include "data/batch.h"
#include "data/order.h"

namespace ulmus::train {

data::DataConfig DataOfSet(const EvalSetTable& set, const data::DataConfig& data) {
  data::DataConfig config;
  config.paths = set.paths;
  config.base_dir = data.base_dir;
  config.path_remaps = data.path_remaps;
  config.dtype = data.dtype;
  config.vocab_size = data.vocab_size;
  config.eos_id = data.eos_id;
  config.pad_id = data.pad_id;
  config.bos_id = data.bos_id;
  config.sequence_length = data.sequence_length;
  config.dataset = "padded";
  return config;
}

namespace {

data::BatchOptions RowOptions(const Trainer& trainer) {
  data::BatchOptions options;
  options.divisor = data::LossDivisor::kValidTokens;
  options.want_documents = trainer.options().step.documents;
  return options;
}

Result<metrics::SumCount> EvaluateSet(const data::InstanceSource& source, Trainer& trainer,
                                      Progress& progress) {
  const int64_t B = trainer.options().eval_batch;
  std::vector<int64_t> rows(static_cast<size_t>(B));
  std::iota(rows.begin(), rows.end(), 0);
  const data::BatchOptions options = RowOptions(trainer);
  data::Batch batch = data::MakeBatch(rows, source.sequence_length(), options);
  batch.global_ids.resize(static_cast<size_t>(B));
  metrics::SumCount sum;
  for (int64_t first = 0; first < source.num_instances(); first += B) {
    for (int64_t row = 0; row < B; ++row) {
      const int64_t instance = first + row;
      batch.global_ids[static_cast<size_t>(row)] =
          instance < source.num_instances() ? instance : data::kNoInstance;
      TRY(data::FillRow(source, options, batch, row));
    }
    sum += TRY(trainer.Evaluate(batch));
    progress.Add(std::min(B, source.num_instances() - first));
  }
  return sum;
}

}  // namespace

Result<HeldOutSets> HeldOutSets::Open(const EvalTable& config, const data::DataConfig& data) {
  HeldOutSets result;
  for (const EvalSetTable& set : config.sets) {
    auto source = data::OpenSource(DataOfSet(set, data));
    if (!source.ok()) return source.status().WithContext(fmt::format("eval set \"{}\"", set.name));
    result.sets_.push_back({set.name, *std::move(source)});
  }
  return result;
}

int64_t HeldOutSets::num_documents() const {
  int64_t total = 0;
  for (const Set& set : sets_) total += set.source->num_instances();
  return total;
}

Result<std::vector<HeldOutLoss>> HeldOutSets::Evaluate(Trainer& trainer) const {
  Progress progress("evaluate", num_documents(), {.unit = "documents"});
  std::vector<HeldOutLoss> losses;
  for (const Set& set : sets_)
    losses.push_back({set.name, TRY(EvaluateSet(*set.source, trainer, progress))});
  return losses;
}

}  // namespace ulmus::train
