#include "metrics/step_record.h"

#include <chrono>

namespace ulmus::metrics {

int64_t StepOf(const Record& record) {
  return std::visit([](const auto& r) { return r.step; }, record);
}

double WallTimeS() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ulmus::metrics
