#include "infer/stop_filter.h"

#include <algorithm>
#include <utility>

namespace ulmus::infer {
namespace {

// Length of the longest proper beginning of `stop` that ends `text`.
size_t Overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopFilter::Add(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  // The match that is complete first; of several that end together, the longest.
  size_t first_end = std::string::npos, begin = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) first_end = end, begin = at;
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    held_.resize(begin);
    return std::exchange(held_, "");
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, Overlap(held_, stop));
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopFilter::Finish() { return std::exchange(held_, ""); }

}  // namespace ulmus::infer
