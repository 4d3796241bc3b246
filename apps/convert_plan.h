// What `convert` will write: the source held against the model's table of tensors, and each
// tensor's new type. Reads no weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/copy_tensors.h"
#include "checkpoint/open.h"
#include "nn/olmo3/config.h"

namespace ulmus::apps {

struct PlanOptions {
  checkpoint::WeightFormat target = checkpoint::WeightFormat::kHf;
  std::optional<DType> dtype;         // of float tensors; none keeps each
  std::optional<int64_t> vocab_size;  // rows of embedding and head, and config.json's vocab_size
  std::optional<int64_t> pad_vocab;  // rows of both rounded up to a multiple, config.json unchanged
  bool keep_extra = false;           // tensors that the model does not have are carried along
};

// One line of the table that is printed when source and model do not fit.
struct Mismatch {
  std::string kind;  // missing, extra, reshaped, dtype
  std::string name, found, expected;
};
std::string MismatchTable(const std::vector<Mismatch>& mismatches);

struct ConvertPlan {
  std::vector<checkpoint::TensorCopy> copies;  // sorted by name
  std::vector<std::string> left_behind;        // optimizer state, which no weights format has
  int64_t num_parameters = 0;
  int64_t bytes = 0;
  bool reshaped_vocab = false;
  // The text to write as config.json: the source's, with dtype and vocab_size as written.
  std::string config_json;
};

// `mismatches` is filled when the error is one of names, shapes or types.
Result<ConvertPlan> PlanConversion(const checkpoint::OpenedSource& source,
                                   const PlanOptions& options, std::vector<Mismatch>* mismatches);

}  // namespace ulmus::apps
