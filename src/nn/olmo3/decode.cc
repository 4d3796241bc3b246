#include "nn/olmo3/decode.h"

#include <algorithm>
#include <cmath>

#include "graph/functions.h"
#include "graph/ops.h"
#include "nn/olmo3/model.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::nn::olmo3 {
namespace {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

// Score of a key that a query may not see. Finite: a padded query sees none.
constexpr double kMasked = -1e30;

// Entries of the cache of one layer.
int64_t CacheEntries(const Config& c, int64_t layer, int64_t max_length, int64_t chunk) {
  // A chunk's padding is written too, and may reach beyond max_length.
  const int64_t all = max_length + chunk - 1;
  return c.is_full(layer) ? all : std::min(c.sliding_window, all);
}

// One program while it is built.
struct Builder {
  const Config& config;
  const DecodeOptions& options;
  Graph& graph;
  Value lengths, counts;  // i32 [B]
  Value positions;        // i32 [B,C], of the tokens of the chunk

  int64_t B() const { return options.batch; }
  int64_t C() const { return options.chunk; }
  int64_t N() const { return config.num_heads; }
  int64_t K() const { return config.num_kv_heads; }
  int64_t H() const { return config.head_dim; }
  int64_t G() const { return N() / K(); }

  Value Int(int64_t value, Shape shape) {
    return Splat(graph, static_cast<double>(value), {DType::kI32, std::move(shape)});
  }
  Value IntIota(Shape shape, int64_t axis) {
    return Iota(graph, {DType::kI32, std::move(shape)}, axis);
  }
  // x [B] along the first axis of [B,n].
  Value Rows(Value x, int64_t n) { return BroadcastInDim(x, {B(), n}, {0}); }
  // The remainder that is never negative.
  Value FloorMod(Value x, int64_t n) {
    const Value divisor = SplatLike(x, static_cast<double>(n));
    return Rem(Rem(x, divisor) + divisor, divisor);
  }
  // The last position below `end` [B] that lies in each entry of a ring of n: [B,n]. Negative where
  // there was none yet.
  Value RingPositions(Value end, int64_t n) {
    const Value last = Rows(end, n) - 1;
    return last - FloorMod(last - IntIota({B(), n}, 1), n);
  }
};

// Keys (or values) that the chunk attends to, and the cache with the chunk appended.
struct Appended {
  Value attended, cache;
};

// x [B,K,C,H] written at entry starts[b] of each row of cache [B,K,S,H]. In place, row by row: the
// cache is large and the chunk is not.
Value WriteRows(Builder& b, Value cache, Value x, Value starts) {
  const Value zero = b.Int(0, {});
  for (int64_t row = 0; row < b.B(); ++row) {
    const Value start = Reshape(Slice(starts, {row}, {row + 1}), {});
    const Value block = Slice(x, {row, 0, 0, 0}, {row + 1, b.K(), b.C(), b.H()});
    cache = DynamicUpdateSlice(cache, block, {b.Int(row, {}), zero, start, zero});
  }
  return cache;
}

// Row [b,k,index[b,s]] of x [B,K,n,H]: [B,K,S,H].
Value TakeEntries(Builder& b, Value x, Value index) {
  const int64_t n = x.dim(2), S = index.dim(1);
  const Shape shape{b.B(), b.K(), S};
  const Value head = b.IntIota(shape, 0) * static_cast<double>(b.K()) + b.IntIota(shape, 1);
  const Value rows = head * static_cast<double>(n) + BroadcastInDim(index, shape, {0, 2});
  return Take(Reshape(x, {b.B() * b.K() * n, b.H()}), rows);
}

// Where the entries of a ring come from after a chunk of several tokens: an index into the ring
// followed by the chunk, [B,S].
Value RingSources(Builder& b, int64_t S) {
  const Value newest = b.RingPositions(b.lengths + b.counts, S);
  const Value old = b.Rows(b.lengths, S);
  const Value from_chunk = newest - old + static_cast<double>(S);
  return Select(Compare(Cmp::kGe, newest, old), from_chunk, b.IntIota({b.B(), S}, 1));
}

// The positions of the attended keys, [B,n]: below 0 where there is none.
Value KeyPositions(Builder& b, bool full, int64_t S) {
  if (full) return b.IntIota({b.B(), S}, 1);
  if (b.C() == 1) return b.RingPositions(b.lengths + 1, S);
  return Concatenate({b.RingPositions(b.lengths, S), b.positions}, 1);
}

Appended Append(Builder& b, bool full, Value cache, Value x) {
  const int64_t S = cache.dim(2);
  if (full) {
    const Value all = WriteRows(b, cache, x, b.lengths);
    return {all, all};
  }
  if (b.C() == 1) {
    // The entry of position length - S goes, which no query needs from now on.
    const Value ring = WriteRows(b, cache, x, b.FloorMod(b.lengths, S));
    return {ring, ring};
  }
  // Queries at the front of the chunk still need entries that its end replaces.
  const Value both = Concatenate({cache, x}, 2);
  return {both, TakeEntries(b, both, RingSources(b, S))};
}

// softmax(q k^T / sqrt(H) + mask) v, heads of one key head as rows.
//   q [B,C,N,H]   k, v [B,K,S,H]   mask bool [B,C,S]   -> [B,C,N,H]
Value Attend(Builder& b, Value q, Value k, Value v, Value mask) {
  const int64_t S = k.dim(2), rows = b.G() * b.C();
  const double scale = 1 / std::sqrt(static_cast<double>(b.H()));
  Value grouped = Reshape(q, {b.B(), b.C(), b.K(), b.G(), b.H()});
  grouped = Reshape(Transpose(grouped, {0, 2, 3, 1, 4}), {b.B(), b.K(), rows, b.H()});
  Value scores =
      DotGeneral(grouped, k, {{0, 1}, {0, 1}, {3}, {3}}, {.highest_precision = true}) * scale;
  const Shape by_head{b.B(), b.K(), b.G(), b.C(), S};
  scores = Reshape(scores, by_head);
  scores = Select(BroadcastInDim(mask, by_head, {0, 3, 4}), scores, SplatLike(scores, kMasked));
  const Value p = Convert(Reshape(Softmax(scores), {b.B(), b.K(), rows, S}), v.dtype());
  Value out = DotGeneral(p, v, {{0, 1}, {0, 1}, {3}, {2}}, {.highest_precision = true});
  out = Reshape(Convert(out, q.dtype()), {b.B(), b.K(), b.G(), b.C(), b.H()});
  return Reshape(Transpose(out, {0, 3, 1, 2, 4}), q.shape());
}

// bool [B,C,n]: which keys each query of the chunk sees.
Value Mask(Builder& b, bool full, Value key_positions) {
  const Shape pairs{b.B(), b.C(), key_positions.dim(1)};
  const Value key = BroadcastInDim(key_positions, pairs, {0, 2});
  const Value distance = BroadcastInDim(b.positions, pairs, {0, 1}) - key;
  const Value mask =
      And(Compare(Cmp::kGe, key, ZerosLike(key)), Compare(Cmp::kGe, distance, ZerosLike(distance)));
  if (full) return mask;
  const Value window = SplatLike(distance, static_cast<double>(b.config.sliding_window));
  return And(mask, Compare(Cmp::kLt, distance, window));
}

Value ApplyCachedLayer(Builder& b, const LayerWeights& w, int64_t layer, const RopeTables& rope,
                       Value x, Value& k_cache, Value& v_cache) {
  const Scope scope(b.graph, fmt::format("layers.{}", layer));
  const bool full = b.config.is_full(layer);
  const ForwardOptions forward{.dtype = b.options.dtype};
  const Qkv qkv = ComputeQkv(b.config, w, x, rope.of(b.config.layer_type(layer)), forward);
  const Value at = KeyPositions(b, full, k_cache.dim(2));
  const Appended keys = Append(b, full, k_cache, Transpose(qkv.k, {0, 2, 1, 3}));
  const Appended values = Append(b, full, v_cache, Transpose(qkv.v, {0, 2, 1, 3}));
  k_cache = keys.cache;
  v_cache = values.cache;
  const Value attended = Attend(b, qkv.q, keys.attended, values.attended, Mask(b, full, at));
  return AddMlp(b.config, w, AddAttention(b.config, w, x, attended, forward), forward);
}

// Of each row the last token that is no padding: [B,C,D] -> [B,1,D].
Value LastTokens(Builder& b, Value x) {
  const int64_t D = x.dim(2);
  const Value last = Max(b.counts - 1, ZerosLike(b.counts));
  const Value rows = b.IntIota({b.B()}, 0) * static_cast<double>(b.C()) + last;
  return Reshape(Take(Reshape(x, {b.B() * b.C(), D}), rows), {b.B(), 1, D});
}

AxisRules RulesFor(const Config& config, const Mesh& mesh, int64_t batch) {
  AxisRules rules = DefaultRules(config, mesh);
  rules["seq"] = {};
  int64_t parts = 1;
  for (const std::string& axis : rules["batch"])
    if (mesh.HasAxis(axis)) parts *= mesh.AxisSize(axis);
  if (batch % parts != 0) rules["batch"] = {};
  return rules;
}

std::vector<Sharding> ShardingsOf(const std::vector<DecodeTensor>& tensors, const AxisRules& rules,
                                  const Mesh& mesh) {
  std::vector<Sharding> shardings;
  for (const DecodeTensor& tensor : tensors) {
    Result<Sharding> sharding = ApplyRules(rules, mesh, tensor.axes);
    CHECK(sharding.ok(), "{}: {}", tensor.name, sharding.status().message());
    shardings.push_back(std::move(*sharding));
  }
  return shardings;
}

Values Declare(Graph& graph, const std::vector<DecodeTensor>& tensors,
               const std::vector<Sharding>& shardings) {
  Values values;
  for (size_t i = 0; i < tensors.size(); ++i)
    values.push_back(graph.Parameter(tensors[i].name, tensors[i].type, shardings[i]));
  return values;
}

// HfTensors() as single layers; there are no stacks.
Weights BindSingles(const Config& config, const Values& values) {
  const size_t kinds = LayerTensorKinds().size();
  Weights weights;
  weights.embedding = values.front();
  const std::span<const Value> layers = std::span(values).subspan(1);
  for (size_t layer = 0; layer < static_cast<size_t>(config.num_layers); ++layer)
    weights.singles.push_back(LayerWeights::From(layers.subspan(layer * kinds, kinds)));
  weights.final_norm = layers[static_cast<size_t>(config.num_layers) * kinds];
  weights.head = config.tie_word_embeddings ? weights.embedding : values.back();
  return weights;
}

}  // namespace

std::vector<DecodeTensor> DecodeWeights(const Config& config, DType dtype) {
  const std::vector<ParameterSpec> parameters = Parameters(config);
  std::vector<DecodeTensor> tensors;
  for (const HfTensor& tensor : HfTensors(config)) {
    const ParameterSpec& parameter = parameters[static_cast<size_t>(tensor.parameter)];
    std::vector<std::string> axes = parameter.axes;
    if (parameter.stacked) axes.erase(axes.begin());
    tensors.push_back({tensor.name,
                       {IsNorm(parameter.kind) ? DType::kF32 : dtype, tensor.shape},
                       std::move(axes)});
  }
  return tensors;
}

std::vector<DecodeTensor> DecodeCache(const Config& config, DType dtype, int64_t batch,
                                      int64_t max_length, int64_t chunk) {
  std::vector<DecodeTensor> tensors;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const Shape shape{batch, config.num_kv_heads, CacheEntries(config, layer, max_length, chunk),
                      config.head_dim};
    for (const char* kind : {"k", "v"}) {
      tensors.push_back({fmt::format("layers.{}.{}_cache", layer, kind),
                         {dtype, shape},
                         {"batch", "kv", "", ""}});
    }
  }
  return tensors;
}

std::vector<Sharding> DecodeWeightShardings(const Config& config, const Mesh& mesh) {
  return ShardingsOf(DecodeWeights(config, DType::kF32), RulesFor(config, mesh, 1), mesh);
}

std::vector<Sharding> DecodeCacheShardings(const Config& config, const Mesh& mesh, int64_t batch) {
  return ShardingsOf(DecodeCache(config, DType::kF32, batch, 1, 1), RulesFor(config, mesh, batch),
                     mesh);
}

std::unique_ptr<Graph> DecodeGraph(const Config& config, const DecodeOptions& options) {
  CHECK(options.chunk >= 1 && options.chunk <= options.max_chunk, "chunk {} of at most {}",
        options.chunk, options.max_chunk);
  const int64_t B = options.batch, C = options.chunk;
  auto owned = std::make_unique<Graph>(C == 1 ? "decode" : "prefill", options.mesh,
                                       RulesFor(config, options.mesh, B));
  Graph& graph = *owned;
  const auto cache_tensors =
      DecodeCache(config, options.dtype, B, options.max_length, options.max_chunk);
  const auto cache_shardings = DecodeCacheShardings(config, options.mesh, B);
  const Weights weights = BindSingles(config, Declare(graph, DecodeWeights(config, options.dtype),
                                                      DecodeWeightShardings(config, options.mesh)));
  const Values cache_in = Declare(graph, cache_tensors, cache_shardings);
  const Value tokens = graph.Parameter("tokens", {DType::kI32, {B, C}});
  const Value lengths = graph.Parameter("lengths", {DType::kI32, {B}});
  const Value counts = graph.Parameter("counts", {DType::kI32, {B}});
  Builder b{config, options, graph, lengths, counts, {}};
  b.positions = b.Rows(lengths, C) + b.IntIota({B, C}, 1);

  const ForwardOptions forward{.dtype = options.dtype};
  const RopeTables rope = MakeRopeTables(config, b.positions);
  Values cache = cache_in;
  Value x = Embed(config, weights, tokens, forward);  // [B,C,D]
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto l = static_cast<size_t>(layer);
    x = ApplyCachedLayer(b, weights.singles[l], layer, rope, x, cache[2 * l], cache[2 * l + 1]);
  }
  if (!options.all_logits) x = LastTokens(b, x);
  Value logits = Logits(config, weights, FinalNorm(config, weights, x), forward);
  if (!options.all_logits) logits = Reshape(logits, {B, config.vocab_size});

  // Whole on every device, so that the host reads one block.
  graph.Result("logits", logits, Sharding::Replicated(logits.rank()));
  for (size_t i = 0; i < cache.size(); ++i)
    graph.Result(cache_tensors[i].name, cache[i], cache_shardings[i], cache_in[i]);
  return owned;
}

}  // namespace ulmus::nn::olmo3
