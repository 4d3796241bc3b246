// Text that came from outside (names of files and tensors, words of a library), made safe to print.
#pragma once

#include <string>
#include <string_view>

namespace ulmus {

// The text with everything that a terminal obeys or does not show written out: control characters
// but line ends and tabs ("\x1b"), marks that turn the direction of writing, invisible characters
// and separators of Unicode ("\u202e"), bytes that are no UTF-8 ("\xff"). All else stays, letters
// of every script too. Lines of the log and of errors pass through it.
std::string EscapeControls(std::string_view text);

}  // namespace ulmus
