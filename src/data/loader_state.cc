#include "data/loader_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace ulmus::data {
namespace {

using Json = nlohmann::ordered_json;

Status CheckSame(std::string_view what, std::string_view stored, std::string_view now) {
  if (stored == now) return {};
  return InvalidArgumentError(
      "the checkpoint's {} is {}, the recipe's is {}: its data order cannot be continued", what,
      stored, now);
}

Status CheckFingerprint(const LoaderState& state, const InstanceSource& source,
                        std::string_view accepted) {
  if (state.dataset_fingerprint == source.fingerprint()) return {};
  if (!accepted.empty() && accepted == state.dataset_fingerprint) {
    LogWarning("data of another fingerprint is accepted by name: {} in the checkpoint, {} now",
               state.dataset_fingerprint, source.fingerprint());
    return {};
  }
  return InvalidArgumentError(
      "the checkpoint was trained on other data: fingerprint {} ({}), now {} ({}); restore the "
      "files, or accept "
      "the change with data.accept_fingerprint = \"{}\"",
      state.dataset_fingerprint, state.dataset_fingerprint_version, source.fingerprint(),
      source.fingerprint_version(), state.dataset_fingerprint);
}

// Source: OLMo-core, DataLoaderBase.global_batch_size (setter).
Status CheckBatch(const LoaderState& state, int64_t now) {
  const int64_t stored = state.batch_size * state.sequence_length;
  if (stored <= 0) return DataLossError("loader state: batches of {} tokens", stored);
  if (now % stored != 0 && stored % now != 0) {
    return InvalidArgumentError(
        "the global batch changes from {} to {} tokens: {} / {} is no whole number; in the middle "
        "of an epoch "
        "it changes by whole factors only",
        stored, now, std::max(stored, now), std::min(stored, now));
  }
  if (state.tokens_processed % now != 0 && stored != now) {
    return InvalidArgumentError(
        "the global batch cannot grow from {} to {} tokens here: {} batches were processed, and {} "
        "% {} = {}; go "
        "on from a step where it divides",
        stored, now, state.batches_processed, state.batches_processed, now / stored,
        state.batches_processed % (now / stored));
  }
  return {};
}

}  // namespace

Result<LoaderState> StateBefore(int64_t step, const GlobalOrder& order,
                                const InstanceSource& source, int64_t total_tokens,
                                const ConsumedIds& consumed) {
  const OrderPosition position = TRY(order.PositionOfStep(step));
  LoaderState state;
  state.dataset_fingerprint_version = source.fingerprint_version();
  state.dataset_fingerprint = source.fingerprint();
  state.batches_processed = position.instance / order.batch_size();
  state.tokens_processed = position.instance * source.sequence_length();
  state.seed = order.config().seed;
  state.epoch = order.EpochNumber(position.epoch);
  state.dataset_type = source.type();
  state.sequence_length = source.sequence_length();
  state.max_target_sequence_length = source.max_target_sequence_length();
  state.order = Name(order.config().kind);
  state.step = step;
  state.batch_size = order.batch_size();
  state.num_instances = source.num_instances();
  state.total_tokens = total_tokens;
  state.consumed = consumed;
  return state;
}

std::string PrintLoaderState(const LoaderState& state) {
  Json json = {{"dataset_fingerprint_version", state.dataset_fingerprint_version},
               {"dataset_fingerprint", state.dataset_fingerprint},
               {"batches_processed", state.batches_processed},
               {"tokens_processed", state.tokens_processed},
               {"seed", state.seed},
               {"epoch", state.epoch},
               {"dataset_type", state.dataset_type},
               {"sequence_length", state.sequence_length},
               {"max_target_sequence_length", state.max_target_sequence_length},
               {"order", state.order},
               {"step", state.step},
               {"batch_size", state.batch_size},
               {"num_instances", state.num_instances},
               {"total_tokens", state.total_tokens},
               {"consumed_ids_hash", state.consumed.value()},
               {"consumed_ids", state.consumed.num_ids()}};
  json.update(Json::parse(PrintIdentities(state.files)));
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

Result<LoaderState> ParseLoaderState(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLossError("loader state: no JSON object");
  Status error;
  const auto read = [&](const char* key, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    const auto it = json.find(key);
    const bool fits =
        it != json.end() &&
        (std::is_same_v<Value, std::string>
             ? it->is_string()
             : it->is_number_unsigned() || (std::is_signed_v<Value> && it->is_number_integer()));
    if (fits)
      it->get_to(value);
    else if (error.ok())
      error =
          DataLossError("loader state: `{}` is {}", key, it == json.end() ? "missing" : it->dump());
  };
  LoaderState state;
  uint64_t hash = 0;
  int64_t num_ids = 0;
  read("dataset_fingerprint_version", state.dataset_fingerprint_version);
  read("dataset_fingerprint", state.dataset_fingerprint);
  read("batches_processed", state.batches_processed);
  read("tokens_processed", state.tokens_processed);
  read("seed", state.seed);
  read("epoch", state.epoch);
  read("dataset_type", state.dataset_type);
  read("sequence_length", state.sequence_length);
  read("max_target_sequence_length", state.max_target_sequence_length);
  read("order", state.order);
  read("step", state.step);
  read("batch_size", state.batch_size);
  read("num_instances", state.num_instances);
  read("total_tokens", state.total_tokens);
  read("consumed_ids_hash", hash);
  read("consumed_ids", num_ids);
  TRY(Status(error));
  state.consumed = ConsumedIds(hash, num_ids);
  if (json.contains("files"))
    state.files = TRY(ParseIdentities(Json{{"files", json["files"]}}.dump(), "loader state"));
  return state;
}

Result<OrderConfig> Resume(const LoaderState& state, const InstanceSource& source,
                           const OrderConfig& config, std::string_view accepted_fingerprint) {
  TRY(CheckFingerprint(state, source, accepted_fingerprint));
  TRY(CheckSame("data.order", state.order, Name(config.kind)));
  TRY(CheckSame("dataset type", state.dataset_type, source.type()));
  TRY(CheckSame("max_target_sequence_length", std::to_string(state.max_target_sequence_length),
                std::to_string(source.max_target_sequence_length())));
  TRY(CheckBatch(state, config.batch_size * source.sequence_length()));
  OrderConfig resumed = config;
  if (state.seed != config.seed) {
    LogWarning(
        "data.seed is {} in the recipe and {} in the checkpoint: the checkpoint's is used, so that "
        "the "
        "order goes on",
        config.seed, state.seed);
    resumed.seed = state.seed;
  }
  const auto order = TRY(GlobalOrder::Create(resumed));
  const int64_t epoch = state.epoch - order->EpochNumber(0);
  const OrderPosition stored = {state.step, epoch,
                                state.tokens_processed / source.sequence_length()};
  // With the same batch size throughout, the step alone says where it reads.
  const Result<OrderPosition> plain = order->PositionOfStep(state.step);
  if (plain.ok() && *plain == stored) return resumed;
  resumed.start = stored;
  TRY(GlobalOrder::Create(resumed));
  return resumed;
}

}  // namespace ulmus::data
