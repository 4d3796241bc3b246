#include "infer/generate.h"

#include <algorithm>
#include <chrono>

namespace ulmus::infer {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The sequences of one batch.
class Batch {
 public:
  Batch(Decoder& decoder, std::span<const std::vector<int32_t>> prompts,
        const GenerateOptions& options, const TokenFn& on_token)
      : decoder_(decoder),
        options_(options),
        on_token_(on_token),
        continuations_(prompts.size()),
        active_(prompts.size(), true),
        next_(static_cast<size_t>(decoder.options().batch)) {
    std::ranges::copy(prompts, next_.begin());
  }

  // Appends what is due, and chooses the next token of each sequence. False when all have ended.
  Result<bool> Step() {
    const HostTensor logits = TRY(decoder_.Append(next_));
    const auto V = static_cast<size_t>(logits.shape().dim(1));
    bool any = false;
    for (size_t row = 0; row < continuations_.size(); ++row) {
      next_[row].clear();
      if (!active_[row]) continue;
      active_[row] = TRY(Choose(row, logits.values<float>().subspan(row * V, V)));
      any = any || active_[row];
    }
    return any;
  }

  int64_t num_due() const {
    int64_t due = 0;
    for (const auto& row : next_) due += static_cast<int64_t>(row.size());
    return due;
  }
  std::vector<Continuation> Take() { return std::move(continuations_); }

 private:
  // False if the sequence has ended.
  Result<bool> Choose(size_t row, std::span<const float> logits) {
    Continuation& continuation = continuations_[row];
    const auto index = static_cast<int64_t>(row);
    const auto id = static_cast<int32_t>(TRY(SampleToken(
        logits, options_.sampling, static_cast<uint64_t>(options_.first_sequence + index),
        static_cast<uint64_t>(decoder_.length(index)))));
    if (std::ranges::find(options_.eos_token_ids, id) != options_.eos_token_ids.end()) {
      continuation.finish = Finish::kEos;
      return false;
    }
    continuation.ids.push_back(id);
    if (on_token_ && !TRY(on_token_(index, id))) {
      continuation.finish = Finish::kStopped;
      return false;
    }
    if (static_cast<int64_t>(continuation.ids.size()) >= options_.max_new_tokens) return false;
    next_[row] = {id};
    return true;
  }

  Decoder& decoder_;
  const GenerateOptions& options_;
  const TokenFn& on_token_;
  std::vector<Continuation> continuations_;
  std::vector<bool> active_;
  std::vector<std::vector<int32_t>> next_;  // tokens to append, per row of the decoder
};

}  // namespace

std::string_view Name(Finish finish) {
  switch (finish) {
    case Finish::kEos:
      return "eos";
    case Finish::kStopped:
      return "stop";
    case Finish::kLength:
      return "length";
  }
  return "";
}

Result<std::vector<Continuation>> Generate(Decoder& decoder,
                                           std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, const TokenFn& on_token,
                                           GenerateTimes& times) {
  TRY(ValidateSampling(options.sampling));
  if (static_cast<int64_t>(prompts.size()) > decoder.options().batch)
    return InvalidArgumentError("{} prompts in a batch of {}", prompts.size(),
                                decoder.options().batch);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      return InvalidArgumentError("prompt {} is empty: there is nothing to continue", i);
  }
  decoder.Restart();
  if (options.max_new_tokens <= 0 || prompts.empty())
    return std::vector<Continuation>(prompts.size());
  Batch batch(decoder, prompts, options, on_token);
  bool prefill = true;
  for (bool more = true; more; prefill = false) {
    const int64_t due = batch.num_due();
    const auto start = Clock::now();
    more = TRY(batch.Step());
    (prefill ? times.prefill_s : times.decode_s) += SecondsSince(start);
    (prefill ? times.prefill_tokens : times.decode_tokens) += due;
  }
  return batch.Take();
}

}  // namespace ulmus::infer
