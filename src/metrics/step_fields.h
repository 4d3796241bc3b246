// The numbers of a StepRecord by name: the one list that JSON, TensorBoard and the reader share.
#pragma once

#include "metrics/step_record.h"

namespace ulmus::metrics {

// Calls visit(name, tag, field) for each number in a fixed order. `name` is the key in
// metrics.jsonl; `tag` the name in TensorBoard, which groups by what is before the slash; empty
// tags are not shown there. Fields are int64_t, double, or optionals of these.
template <class StepRecordRef, class Visit>
void VisitStepFields(StepRecordRef& record, Visit&& visit) {
  visit("step", "", record.step);
  visit("tokens", "train/tokens", record.tokens);
  visit("loss", "train/loss", record.loss);
  visit("z_loss", "train/z_loss", record.z_loss);
  visit("targets", "", record.targets);
  visit("loss_divisor", "", record.loss_divisor);
  visit("grad_norm", "train/grad_norm", record.grad_norm);
  visit("update_norm", "train/update_norm", record.update_norm);
  visit("learning_rate", "train/learning_rate", record.learning_rate);
  visit("applied", "", record.applied);
  visit("skipped", "train/skipped", record.skipped);
  visit("adam_count", "", record.adam_count);
  visit("filtered", "data/filtered", record.filtered);
  visit("data_wait_s", "data/wait_s", record.data_wait_s);
  visit("step_s", "speed/step_s", record.step_s);
  visit("tokens_per_s", "speed/tokens_per_s", record.tokens_per_s);
  visit("flops_per_s", "speed/flops_per_s", record.flops_per_s);
  visit("mfu", "speed/mfu", record.mfu);
  visit("resident_bytes", "memory/resident_bytes", record.resident_bytes);
  visit("device_bytes", "memory/device_bytes", record.device_bytes);
  visit("wall_time_s", "", record.wall_time_s);
}

}  // namespace ulmus::metrics
