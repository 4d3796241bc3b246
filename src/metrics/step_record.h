// What is known of a step, an evaluation or an event of a run, as plain data. Everything that
// shows, stores or compares metrics starts here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "metrics/sum_count.h"

namespace ulmus::metrics {

struct NamedValue {
  std::string name = {};
  double value = 0;
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

// One update, applied or skipped. Only the fields below `measured` depend on the machine or the
// clock: a resumed run repeats all others to the last bit.
// A new field is one line here and one in step_fields.h.
struct StepRecord {
  int64_t step = 0;          // 1 for the first; skipped updates count
  int64_t tokens = 0;        // consumed by the run up to and with this step
  double loss = 0;           // cross entropy, nats: sum over targets / loss_divisor
  double z_loss = 0;         // weighted, same divisor
  int64_t targets = 0;       // of the global batch
  int64_t loss_divisor = 0;  // targets + sequence length per filtered instance
  double grad_norm = 0;      // before clipping
  double update_norm = 0;    // of the change of all weights; 0 if not applied
  double learning_rate = 0;
  int64_t applied = 1;       // 0: skipped, the weights kept every bit
  int64_t skipped = 0;       // updates skipped so far, this one included
  int64_t adam_count = 0;    // the optimizer's own step count after this update
  std::string id_hash = {};  // hexadecimal RollingHash of all instance ids consumed so far
  int64_t filtered = 0;      // instances of this batch masked by the n-gram filter
  std::vector<NamedValue> norms = {};  // "grad_norm/model.layers.0", ...; empty unless asked for

  // --- measured
  double data_wait_s = 0;  // the loop stood still for the loader
  double step_s = 0;       // from the metrics of the step before to those of this one
  double tokens_per_s = 0;
  std::optional<double> flops_per_s = {};    // all devices; absent if FLOPs per token are not known
  std::optional<double> mfu = {};            // absent if the peak is not known (throughput.h)
  int64_t resident_bytes = 0;                // of this process
  std::optional<int64_t> device_bytes = {};  // in use on the fullest device, if the plugin says
  double wall_time_s = 0;                    // since 1970; only for people

  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

// Held-out loss of one set with the weights after `step`.
struct EvalRecord {
  int64_t step = 0;
  std::string set = {};
  SumCount loss = {};  // nats, targets
  double wall_time_s = 0;

  friend bool operator==(const EvalRecord&, const EvalRecord&) = default;
};

// Names of events that others look for. Any other name may be used.
inline constexpr std::string_view kEventStart = "start";    // from initial weights
inline constexpr std::string_view kEventResume = "resume";  // from the checkpoint of `step`
inline constexpr std::string_view kEventSave = "save";
inline constexpr std::string_view kEventAlarm = "alarm";  // shown as a warning
// A damaged checkpoint that an older one stands in for.
inline constexpr std::string_view kEventPassedOver = "passed_over";
inline constexpr std::string_view kEventStop = "stop";  // by a signal
inline constexpr std::string_view kEventComplete = "complete";

struct EventRecord {
  int64_t step = 0;
  std::string name = {};
  std::string text = {};  // for people; may be empty
  double wall_time_s = 0;

  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

using Record = std::variant<StepRecord, EvalRecord, EventRecord>;

int64_t StepOf(const Record& record);
// Seconds since 1970.
double WallTimeS();

}  // namespace ulmus::metrics
