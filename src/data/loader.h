// Reads batches ahead of the step, in order, on threads of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/batch.h"
#include "data/instance_source.h"
#include "data/order.h"

namespace ulmus::data {

struct LoaderOptions {
  BatchOptions batch = {};
  BatchLayout layout = {};  // batch_size is the order's
  int64_t host = 0;
  int64_t first_step = 0;
  std::optional<int64_t> end_step = std::nullopt;  // stops before; else where the data ends
  int64_t num_threads = 2;
  int64_t read_ahead = 4;  // batches in memory, the one in use included; at least 2
};

struct LoaderStats {
  int64_t batches = 0;
  int64_t tokens = 0;
  double wait_s = 0;       // the caller's, in Next()
  double last_wait_s = 0;  // of the last Next()
};

// One caller. Memory is read_ahead batches, whatever the size of the data. Destroying it stops the
// threads at the next row they finish.
class Loader {
 public:
  // `source` and `order` must outlive the loader. kInvalidArgument if the layout does not divide
  // the batch or asks for rows of more hosts than there are instances.
  static Result<std::unique_ptr<Loader>> Create(const InstanceSource& source,
                                                const GlobalOrder& order,
                                                const LoaderOptions& options);
  ~Loader();

  // The batch of next_step(), valid until the next call; null after the last step. Errors come at
  // the step they belong to, after all batches before it; the same error again if asked again.
  Result<const Batch*> Next();

  // Goes on with the batch of `step`: what was read ahead is dropped. O(1). Clears an error.
  void SeekTo(int64_t step);

  int64_t next_step() const;
  LoaderStats stats() const;

 private:
  class State;
  explicit Loader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ulmus::data
