// Cuts text into the pieces inside which byte pairs are merged. PCRE2's header appears in
// pattern.cc only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/definition.h"

namespace ulmus::tokenizer {

// The same language in PCRE2's syntax. Oniguruma and PCRE2 give some notations other meanings:
// `\s` is rewritten, whatever else differs is kInvalidArgument.
Result<std::string> TranslatePattern(std::string_view oniguruma);

// One compiled pattern; immutable, any thread.
class Pattern {
 public:
  static Result<Pattern> Compile(const SplitRule& rule);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // What one match in progress needs; one thread at a time.
  class Scratch {
   public:
    Scratch();
    ~Scratch();

   private:
    friend class Pattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Appends the ends of the pieces of `text`, which is valid UTF-8: the last is text.size().
  // Matches are pieces, and so is what is between them.
  Status Split(std::string_view text, Scratch& scratch, std::vector<size_t>& ends) const;

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace ulmus::tokenizer
