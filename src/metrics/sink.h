// Where records go: one interface, one implementation per destination.
#pragma once

#include "base/status.h"
#include "metrics/step_record.h"

namespace ulmus::metrics {

// One thread. A failed Write leaves all earlier records whole and the sink usable: the next Write
// may succeed, when the disk has space again.
class Sink {
 public:
  virtual ~Sink() = default;
  // Step records come in the order of their steps, each step once.
  virtual Status Write(const Record& record) = 0;
  // Makes all records durable. The loop calls it before it commits a checkpoint, so that a run
  // resumed from there has every record up to it, even after a power cut.
  virtual Status Flush() = 0;
};

}  // namespace ulmus::metrics
