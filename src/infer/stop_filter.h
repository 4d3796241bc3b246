// Cuts a growing text before the first stop string, without showing any of it earlier.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ulmus::infer {

// Text arrives in pieces of any size: a stop string may begin in one and end in a later one, so
// what could be the beginning of one is held back. One thread.
class StopFilter {
 public:
  // Empty strings are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  // The part of the text so far that can be shown now. The first stop string to be complete ends
  // the text where it begins; afterwards nothing is shown.
  std::string Add(std::string_view piece);
  // What was held back, once no text follows. Nothing after a stop.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest end of the text that is a proper beginning of a stop string
  bool stopped_ = false;
};

}  // namespace ulmus::infer
