#include "data/order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "data/index_shuffle.h"

namespace ulmus::data {
namespace {

constexpr std::pair<OrderKind, std::string_view> kOrderNames[] = {
    {OrderKind::kOlmoCore, "olmo_core"},
    {OrderKind::kMaxText, "maxtext"},
    {OrderKind::kGrain, "grain"},
    {OrderKind::kSequential, "sequential"},
};
constexpr std::pair<EndPolicy, std::string_view> kEndNames[] = {
    {EndPolicy::kStop, "stop"},
    {EndPolicy::kWrap, "wrap"},
    {EndPolicy::kPad, "pad"},
};

template <class Value, size_t kCount>
std::string_view NameIn(const std::pair<Value, std::string_view> (&names)[kCount], Value value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  CHECK(false, "value {} without a name", static_cast<int>(value));
  return "";
}

template <class Value, size_t kCount>
Result<Value> ParseIn(const std::pair<Value, std::string_view> (&names)[kCount],
                      std::string_view what, std::string_view name) {
  std::string known;
  for (const auto& [value, candidate] : names) {
    if (candidate == name) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate);
  }
  return InvalidArgumentError("no {} `{}`; there are {}", what, name, known);
}

// OLMo-core: NumpyFSLDataLoader._build_global_indices asserts fewer instances than this.
constexpr int64_t kOlmoCoreLimit = std::numeric_limits<uint32_t>::max();

int64_t LimitOf(OrderKind kind) {
  switch (kind) {
    case OrderKind::kOlmoCore:
      return kOlmoCoreLimit - 1;
    case OrderKind::kGrain:
      return IndexShuffle::kMaxSize;
    case OrderKind::kMaxText:
    case OrderKind::kSequential:
      break;
  }
  return int64_t{1} << 53;
}

// Source: MaxText, olmo_data_grain.py, _combine_seed_epoch.
uint64_t MaxTextSeed(uint64_t seed, int64_t epoch) {
  Sha256 hash;
  hash.Update(fmt::format("olmo-shuffle:{}:{}", seed, epoch));
  const Sha256::Digest digest = hash.digest();
  uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof(first));
  return first;
}

Status CheckConfig(const OrderConfig& config) {
  if (config.num_instances < 1)
    return InvalidArgumentError("the data has 0 instances; an order needs at least 1");
  if (config.batch_size < 1 || config.instances_per_chunk < 1) {
    return InvalidArgumentError("batches of {} instances and chunks of {}; expected 1 or more",
                                config.batch_size, config.instances_per_chunk);
  }
  if (config.num_instances > LimitOf(config.kind)) {
    return InvalidArgumentError(
        "order {} numbers at most {} instances, the data has {}; use order grain",
        Name(config.kind), LimitOf(config.kind), config.num_instances);
  }
  if (config.kind == OrderKind::kGrain && config.seed > 0xffffffffu) {
    return InvalidArgumentError("order grain takes seeds below 2^32, found {}", config.seed);
  }
  if (config.instances_per_chunk > 1 && config.kind != OrderKind::kOlmoCore &&
      config.kind != OrderKind::kSequential) {
    return InvalidArgumentError(
        "order {} cannot keep chunks of {} instances together; use order olmo_core, or a "
        "max_target_sequence_length equal to the sequence length",
        Name(config.kind), config.instances_per_chunk);
  }
  return {};
}

}  // namespace

std::string_view Name(OrderKind kind) { return NameIn(kOrderNames, kind); }
Result<OrderKind> ParseOrderKind(std::string_view name) {
  return ParseIn(kOrderNames, "order", name);
}
std::string_view Name(EndPolicy policy) { return NameIn(kEndNames, policy); }
Result<EndPolicy> ParseEndPolicy(std::string_view name) {
  return ParseIn(kEndNames, "end policy", name);
}

OrderKind DefaultOrderKind(int64_t num_instances) {
  return num_instances <= LimitOf(OrderKind::kOlmoCore) ? OrderKind::kOlmoCore : OrderKind::kGrain;
}

GlobalOrder::GlobalOrder(const OrderConfig& config, const PermutationStoreOptions& store)
    : config_(config), store_(std::make_unique<PermutationStore>(store)) {}

Result<std::unique_ptr<GlobalOrder>> GlobalOrder::Create(const OrderConfig& config,
                                                         const PermutationStoreOptions& store) {
  TRY(CheckConfig(config));
  std::unique_ptr<GlobalOrder> order(new GlobalOrder(config, store));
  const int64_t batch = config.batch_size;
  const int64_t length = order->EpochLength();
  const OrderPosition& start = config.start;
  if (length < batch && config.end != EndPolicy::kPad &&
      !(order->CarriesOver() && config.end == EndPolicy::kWrap)) {
    return InvalidArgumentError(
        "zero batches: {} instances give floor({} / {}) = 0 global batches of {}; make the global "
        "batch "
        "smaller, add data, or set data.end = \"pad\"",
        config.num_instances, config.num_instances, batch, batch);
  }
  if (start.step < 0 || start.epoch < 0 || start.instance < 0 || start.instance > length ||
      (!order->CarriesOver() && start.instance % batch != 0 && start.instance != length)) {
    return InvalidArgumentError(
        "step {} cannot start at instance {} of epoch {}: an epoch has {} instances in batches of "
        "{}, and "
        "{} % {} = {}",
        start.step, start.instance, order->EpochNumber(start.epoch), length, batch, start.instance,
        batch, start.instance % batch);
  }
  if (config.end != EndPolicy::kWrap) {
    const int64_t left = start.epoch > 0 ? 0 : length - start.instance;
    order->num_steps_ =
        start.step + (config.end == EndPolicy::kPad ? (left + batch - 1) / batch : left / batch);
  }
  return order;
}

// In the references without batches of their own, records follow each other over the end of an
// epoch.
bool GlobalOrder::CarriesOver() const {
  return config_.kind == OrderKind::kMaxText || config_.kind == OrderKind::kGrain;
}

// Instances after which the next epoch begins.
int64_t GlobalOrder::EpochLength() const {
  const int64_t whole_chunks =
      config_.num_instances / config_.instances_per_chunk * config_.instances_per_chunk;
  if (CarriesOver() || config_.end == EndPolicy::kPad) return whole_chunks;
  return whole_chunks / config_.batch_size * config_.batch_size;
}

int64_t GlobalOrder::instances_per_epoch() const {
  const int64_t length = EpochLength();
  return config_.end == EndPolicy::kStop ? length / config_.batch_size * config_.batch_size
                                         : length;
}

int64_t GlobalOrder::EpochNumber(int64_t epoch) const { return CarriesOver() ? epoch : epoch + 1; }

Result<OrderPosition> GlobalOrder::PositionOfStep(int64_t step) const {
  const int64_t batch = config_.batch_size;
  const int64_t length = EpochLength();
  const OrderPosition& start = config_.start;
  if (step < start.step) {
    return OutOfRangeError(
        "step {}: batches of {} begin at step {}; earlier steps had another size", step, batch,
        start.step);
  }
  if (num_steps_.has_value() && step > *num_steps_) {
    return OutOfRangeError("step {}: the data ends after step {} (data.end = \"{}\")", step,
                           *num_steps_ - 1, Name(config_.end));
  }
  const int64_t steps = step - start.step;
  if (steps > (std::numeric_limits<int64_t>::max() / 2 - start.instance) / batch)
    return OutOfRangeError("step {} with batches of {}: more instances than 2^62", step, batch);
  int64_t instance = start.instance + steps * batch;
  // The end of a run that does not wrap stays in its epoch.
  if (num_steps_.has_value()) return OrderPosition{step, start.epoch, std::min(instance, length)};
  // Batches of an epoch without a tail fill it exactly, so both kinds of order count alike. Only a
  // start in the middle of another batch size leaves a tail of its own, which Create() refuses.
  return OrderPosition{step, start.epoch + instance / length, instance % length};
}

PermutationId GlobalOrder::PermutationOfEpoch(int64_t epoch) const {
  const uint64_t seed = config_.kind == OrderKind::kMaxText
                            ? MaxTextSeed(config_.seed, epoch)
                            : config_.seed + static_cast<uint64_t>(EpochNumber(epoch));
  return {seed, config_.num_instances / config_.instances_per_chunk};
}

// Chunks are shuffled; the instances of each follow each other.
Status GlobalOrder::ReadChunks(int64_t epoch, int64_t first, std::span<int64_t> ids) const {
  const int64_t chunk = config_.instances_per_chunk;
  if (chunk == 1) return store_->Read(PermutationOfEpoch(epoch), first, ids);
  const int64_t first_chunk = first / chunk;
  const int64_t last_chunk = (first + static_cast<int64_t>(ids.size()) - 1) / chunk;
  std::vector<int64_t> chunks(static_cast<size_t>(last_chunk - first_chunk + 1));
  TRY(store_->Read(PermutationOfEpoch(epoch), first_chunk, chunks));
  for (size_t k = 0; k < ids.size(); ++k) {
    const int64_t place = first + static_cast<int64_t>(k);
    ids[k] = chunks[static_cast<size_t>(place / chunk - first_chunk)] * chunk + place % chunk;
  }
  return {};
}

Status GlobalOrder::ReadEpoch(int64_t epoch, int64_t first, std::span<int64_t> ids) const {
  switch (config_.kind) {
    case OrderKind::kOlmoCore:
    case OrderKind::kMaxText:
      return ReadChunks(epoch, first, ids);
    case OrderKind::kGrain: {
      // Source: Grain, ShuffleMapDataset._shuffled_index: (seed + epoch) mod 2^32.
      const IndexShuffle shuffle(
          config_.num_instances,
          static_cast<uint32_t>(config_.seed + static_cast<uint64_t>(epoch)));
      for (size_t k = 0; k < ids.size(); ++k) ids[k] = shuffle(first + static_cast<int64_t>(k));
      return {};
    }
    case OrderKind::kSequential:
      std::iota(ids.begin(), ids.end(), first);
      return {};
  }
  return InternalError("order {}", static_cast<int>(config_.kind));
}

Status GlobalOrder::InstancesOfStep(int64_t step, std::span<int64_t> ids) const {
  CHECK(static_cast<int64_t>(ids.size()) == config_.batch_size, "room for {} ids, a batch has {}",
        ids.size(), config_.batch_size);
  OrderPosition position = TRY(PositionOfStep(step));
  if (num_steps_.has_value() && step == *num_steps_) {
    return OutOfRangeError("step {}: the data ends after step {} (data.end = \"{}\")", step,
                           step - 1, Name(config_.end));
  }
  const int64_t length = EpochLength();
  while (!ids.empty()) {
    const auto count =
        static_cast<size_t>(std::min(static_cast<int64_t>(ids.size()), length - position.instance));
    TRY(ReadEpoch(position.epoch, position.instance, ids.first(count)));
    ids = ids.subspan(count);
    if (config_.end == EndPolicy::kPad) {
      std::ranges::fill(ids, kNoInstance);
      break;
    }
    ++position.epoch;
    position.instance = 0;
  }
  return {};
}

Result<std::vector<int64_t>> GlobalOrder::InstancesOfStep(int64_t step) const {
  std::vector<int64_t> ids(static_cast<size_t>(config_.batch_size));
  TRY(InstancesOfStep(step, ids));
  return ids;
}

Status GlobalOrder::Prepare() const {
  if (config_.kind != OrderKind::kOlmoCore && config_.kind != OrderKind::kMaxText) return {};
  return store_->Prepare(PermutationOfEpoch(config_.start.epoch));
}

}  // namespace ulmus::data
