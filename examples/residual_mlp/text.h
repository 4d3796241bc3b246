// Training examples cut from a text: a window of bytes and the byte that follows.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "residual_mlp/config.h"
#include "tensor/host_tensor.h"

namespace ulmus::residual_mlp {

struct TextBatch {
  HostTensor tokens;  // i32[B,C]
  HostTensor labels;  // i32[B]
};

class Text {
 public:
  // Joins the files. The last tenth is held out. kInvalidArgument if there is too little for one
  // window in each part.
  static Result<Text> Load(const Config& config);

  // The batch of step k is a pure function of (seed, k): positions are drawn anew for each step.
  TextBatch TrainBatch(int64_t step) const;
  // Batch i of the held-out part, windows evenly spread over it.
  TextBatch HeldOutBatch() const;
  int64_t num_bytes() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  Text(const Config& config, std::string bytes);
  TextBatch Cut(const std::vector<int64_t>& starts) const;

  int64_t batch_size_, context_, seed_;
  std::string bytes_;
  int64_t held_out_start_;
};

}  // namespace ulmus::residual_mlp
