// From a plugin's error to ours: the code stays unless the text says better, the message loses what
// helps nobody.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace ulmus::pjrt {

// Drops the fixed sentence about StableHLO versions and the source traces that some plugins append.
std::string CleanMessage(std::string_view message);

// `code` is a PJRT_Error_Code. Parser errors ("-:3:5: error: ...") and rejected compile options
// arrive under vague codes and become kInvalidArgument; a program that does not fit the device
// becomes kResourceExhausted.
Status MakeStatus(int code, std::string_view message);

}  // namespace ulmus::pjrt
