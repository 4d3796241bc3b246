#include "train/run_state.h"

#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/native.h"  // kMaxTrainStateBytes

namespace ulmus::train {
namespace {

constexpr std::string_view kFormat = "ulmus-train-state-1";

// One field of an object; kDataLoss if it is absent or of another kind.
template <class T>
Result<T> Field(const OrderedJson& object, std::string_view key, std::string_view name) {
  const auto it = object.find(key);
  bool right = it != object.end();
  if constexpr (std::is_same_v<T, int64_t>) right = right && it->is_number_integer();
  if constexpr (std::is_same_v<T, double>) right = right && it->is_number();
  if constexpr (std::is_same_v<T, std::string>) right = right && it->is_string();
  if constexpr (std::is_same_v<T, OrderedJson>) right = right && it->is_object();
  if constexpr (std::is_same_v<T, std::vector<double>>) {
    right = right && it->is_array();
    for (size_t i = 0; right && i < it->size(); ++i) right = (*it)[i].is_number();
  }
  if (!right)
    return DataLossError("{}: field `{}` is {}; use another checkpoint", name, key,
                         it == object.end() ? "missing" : "of the wrong type");
  return it->template get<T>();
}

Status CheckCounters(const RunState& state, std::string_view name) {
  const bool right = state.step >= 0 && state.tokens >= 0 && state.skipped >= 0 &&
                     state.skipped <= state.step && state.skipped_in_a_row >= 0 &&
                     state.skipped_in_a_row <= state.skipped && state.adam_count >= 0;
  if (right) return {};
  return DataLossError(
      "{}: {} steps, {} tokens, {} left out, {} in a row, {} updates behind the moments do not go "
      "together; use another checkpoint",
      name, state.step, state.tokens, state.skipped, state.skipped_in_a_row, state.adam_count);
}

}  // namespace

std::string PrintTrainState(const RunState& state, const data::LoaderState& loader,
                            std::string_view recipe_hash) {
  const OrderedJson json = {
      {"format", kFormat},
      {"step", state.step},
      {"tokens", state.tokens},
      {"skipped", state.skipped},
      {"skipped_in_a_row", state.skipped_in_a_row},
      {"adam_count", state.adam_count},
      {"skip_history",
       {{"losses", state.history.losses()}, {"grad_norms", state.history.grad_norms()}}},
      {"data", OrderedJson::parse(data::PrintLoaderState(loader))},
      {"recipe_hash", recipe_hash},
  };
  return json.dump(1) + "\n";
}

Result<TrainState> ParseTrainState(std::string_view text, const optim::SkipOptions& skip,
                                   std::string_view name) {
  const Result<OrderedJson> parsed =
      ParseOrderedJson(text, {.max_bytes = checkpoint::kMaxTrainStateBytes});
  if (!parsed.ok())
    return DataLossError("{}: no JSON object: {}; use another checkpoint", name,
                         parsed.status().message());
  const OrderedJson& json = *parsed;
  if (!json.is_object()) return DataLossError("{}: no JSON object; use another checkpoint", name);
  const std::string format = TRY(Field<std::string>(json, "format", name));
  if (format != kFormat)
    return DataLossError("{}: format \"{}\", expected \"{}\"; it was written by another version",
                         name, format, kFormat);
  TrainState state;
  state.run.step = TRY(Field<int64_t>(json, "step", name));
  state.run.tokens = TRY(Field<int64_t>(json, "tokens", name));
  state.run.skipped = TRY(Field<int64_t>(json, "skipped", name));
  state.run.skipped_in_a_row = TRY(Field<int64_t>(json, "skipped_in_a_row", name));
  state.run.adam_count = TRY(Field<double>(json, "adam_count", name));
  TRY(CheckCounters(state.run, name));
  const OrderedJson history = TRY(Field<OrderedJson>(json, "skip_history", name));
  state.run.history = optim::SkipHistory(skip);
  auto losses = TRY(Field<std::vector<double>>(history, "losses", name));
  auto grad_norms = TRY(Field<std::vector<double>>(history, "grad_norms", name));
  TRY(state.run.history.Restore(std::move(losses), std::move(grad_norms)));
  const OrderedJson loader = TRY(Field<OrderedJson>(json, "data", name));
  state.loader = TRY(data::ParseLoaderState(loader.dump()));
  state.run.consumed = state.loader.consumed;
  state.recipe_hash = TRY(Field<std::string>(json, "recipe_hash", name));
  return state;
}

}  // namespace ulmus::train
