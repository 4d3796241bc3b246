// Notices memorisation: the training loss falls while the loss on text the model does not train on
// stays. Repeated data, not a better model, is the usual cause.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/step_record.h"

namespace ulmus::metrics {

struct HeldoutAlarmOptions {
  int64_t window_steps = 20;     // training loss: mean over this many steps up to an evaluation
  double min_train_fall = 0.25;  // nats: how far the training loss must fall before it is compared
  double min_follow = 0.1;       // held-out loss follows if it falls by this share of that fall
  double max_gap = 1.0;          // nats: held-out minus training loss
};

// A pure function of the records it is given, so a run that resumes gets its state back by reading
// metrics.jsonl. Skipped steps and losses that are not finite do not count.
class HeldoutAlarm {
 public:
  explicit HeldoutAlarm(HeldoutAlarmOptions options = {}) : options_(options) {}

  void Add(const Record& record);

  // To be called after the records of an evaluation: the alarm's text if, since the last evaluation
  // at which the training loss was higher by min_train_fall or more, no set followed its fall; or
  // if every set is above the training loss by more than max_gap. Text for people, nullopt if all
  // is well.
  std::optional<std::string> Check() const;

 private:
  struct Point {
    int64_t step = 0;
    double train = 0;                       // mean over the window
    std::map<std::string, double> heldout;  // mean of each set; never empty
  };
  void AddStep(const StepRecord& record);
  void AddEval(const EvalRecord& record);
  std::optional<std::string> CheckGap(const Point& now) const;
  std::optional<std::string> CheckFollow(const Point& before, const Point& now) const;

  HeldoutAlarmOptions options_;
  std::deque<SumCount> window_;  // losses of the last window_steps steps
  std::vector<Point> points_;    // evaluations so far
};

}  // namespace ulmus::metrics
