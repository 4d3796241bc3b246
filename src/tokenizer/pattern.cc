#include "tokenizer/pattern.h"

#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"

namespace ulmus::tokenizer {
namespace {

// White_Space of Unicode, which is what Oniguruma and Rust's engines mean by \s. PCRE2's own \s has
// U+180E besides.
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";

constexpr size_t kJitStackStartBytes = size_t{32} << 10;
constexpr size_t kJitStackLimitBytes = size_t{64} << 20;  // address space; touched only if needed

std::string PcreMessage(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

bool IsPunctuation(char c) {
  return std::string_view(R"(\^$.|?*+()[]{}-/'"<>=!:#&,;@%~_`)").find(c) != std::string_view::npos;
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Translate() {
    while (at_ < in_.size()) TRY(Step());
    if (in_class_) return Refuse("an unclosed [");
    return std::move(out_);
  }

 private:
  Status Refuse(std::string_view what) const {
    return InvalidArgumentError(
        "the pattern `{}` has {} at byte {}, which this program does not take: it may mean "
        "something "
        "else to the engine that the file was written for",
        in_, what, at_);
  }

  Status Step() {
    const char c = in_[at_];
    if (c == '\\') return Escape();
    if (in_class_) return InClass(c);
    if (c == '[') {
      in_class_ = true;
      class_start_ = at_;
      return Copy(in_.substr(at_).starts_with("[^") ? 2 : 1);
    }
    if (c == '^' || c == '$') return Refuse(fmt::format("`{}`", c));
    if (in_.substr(at_).starts_with("(?")) return Group();
    if (c == '}' && in_.substr(at_).starts_with("}+")) return Refuse("`}+`");
    return Copy(1);
  }

  Status InClass(char c) {
    if (c == ']' && at_ > class_start_ + 1) {
      in_class_ = false;
    } else if (c == '[' || in_.substr(at_).starts_with("&&")) {
      return Refuse("a class inside a class");
    }
    return Copy(1);
  }

  Status Group() {
    for (const std::string_view start : {"(?i:", "(?:", "(?!", "(?=", "(?<!", "(?<=", "(?>"}) {
      if (in_.substr(at_).starts_with(start)) return Copy(start.size());
    }
    return Refuse(fmt::format("`{}`", in_.substr(at_, 4)));
  }

  Status Escape() {
    const std::string_view rest = in_.substr(at_);
    if (rest.size() < 2) return Refuse("a lone \\");
    switch (rest[1]) {
      case 's':
        out_ += in_class_ ? std::string(kSpace) : fmt::format("[{}]", kSpace);
        at_ += 2;
        return {};
      case 'S':
        if (in_class_) return Refuse("`\\S` in a class");
        out_ += fmt::format("[^{}]", kSpace);
        at_ += 2;
        return {};
      case 'p':
      case 'P': {
        const size_t end = rest.find('}');
        if (rest.size() < 4 || rest[2] != '{' || end == std::string_view::npos)
          return Refuse("a property without braces");
        return Copy(end + 1);
      }
      case 'r':
      case 'n':
      case 't':
      case 'd':
        return Copy(2);
      default:
        if (IsPunctuation(rest[1])) return Copy(2);
        return Refuse(fmt::format("`{}`", rest.substr(0, 2)));
    }
  }

  Status Copy(size_t size) {
    out_ += in_.substr(at_, size);
    at_ += size;
    return {};
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_start_ = 0;
};

}  // namespace

Result<std::string> TranslatePattern(std::string_view oniguruma) {
  return Translator(oniguruma).Translate();
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  SplitRule rule;
  ~Code() { pcre2_code_free(code); }
};

struct Pattern::Scratch::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack =
      pcre2_jit_stack_create(kJitStackStartBytes, kJitStackLimitBytes, nullptr);
  State() {
    CHECK(match != nullptr && context != nullptr, "PCRE2 got no memory");
    // A long run of spaces backtracks once a character: limits would turn long texts into errors.
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_set_depth_limit(context, UINT32_MAX);
    pcre2_set_heap_limit(context, UINT32_MAX);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

Pattern::Scratch::Scratch() : state_(std::make_unique<State>()) {}
Pattern::Scratch::~Scratch() = default;

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::Compile(const SplitRule& rule) {
  const std::string translated = TRY(TranslatePattern(rule.pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->rule = rule;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context != nullptr, "PCRE2 got no memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    return InvalidArgumentError("the pattern `{}` (`{}` to PCRE2) is wrong at byte {}: {}",
                                rule.pattern, translated, offset, PcreMessage(error));
  }
  // Without memory that may be executed PCRE2 interprets the pattern, ten times slower.
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Pattern(std::move(code));
}

Status Pattern::Split(std::string_view text, Scratch& scratch, std::vector<size_t>& ends) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  Scratch::State& state = *scratch.state_;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.match);
  const auto match = code_->jit ? &pcre2_jit_match : &pcre2_match;
  size_t start = 0;  // of the piece to come
  size_t from = 0;   // where the search goes on: behind `start` after an empty match
  while (start < text.size()) {
    const int count = from > text.size() ? PCRE2_ERROR_NOMATCH
                                         : match(code_->code, subject, text.size(), from,
                                                 PCRE2_NO_UTF_CHECK, state.match, state.context);
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
      return InternalError("the pattern `{}` failed on a text of {} bytes, at byte {}: {}",
                           code_->rule.pattern, text.size(), from, PcreMessage(count));
    }
    const size_t match_start = count < 0 ? text.size() : found[0];
    const size_t match_end = count < 0 ? text.size() : found[1];
    if (match_start > start) {
      if (!code_->rule.keeps_gaps) {
        return InvalidArgumentError(
            "the pattern `{}` matches nothing at byte {} of the text; the file says to drop such "
            "text, which would not decode to what it was",
            code_->rule.pattern, start);
      }
      if (match_end > match_start || count < 0) ends.push_back(match_start);
    }
    if (match_end > match_start) ends.push_back(match_end);
    if (match_end > match_start || count < 0) {
      start = from = match_end;
    } else {
      // An empty match separates nothing that we keep; step over one character.
      from = match_end + 1;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  return {};
}

}  // namespace ulmus::tokenizer
