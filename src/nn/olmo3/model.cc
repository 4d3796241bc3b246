#include "nn/olmo3/model.h"

#include "graph/functions.h"
#include "graph/ops.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/olmo3/remat.h"

namespace ulmus::nn::olmo3 {
namespace {

using graph::Value;
using graph::Values;

bool OnSeveralDevices(Value x) { return x.graph().mesh().num_devices() > 1; }

Sharding ShardingOf(Value x, const std::vector<std::string>& axes) {
  return x.graph().ShardingFor(axes, Loc::current());
}

void Note(const ForwardOptions& options, const std::string& name, Value value) {
  if (options.capture) options.capture(name, value);
}

// x [..,in] times w [out,in] transposed, in x's dtype; sums in f32.
Value Linear(Value x, Value w) {
  const graph::DotDims dims{{}, {}, {x.rank() - 1}, {1}};
  const Value y =
      DotGeneral(x, Convert(w, x.dtype()), dims,
                 {.result = DType::kF32, .highest_precision = x.dtype() == DType::kF32});
  return Convert(y, x.dtype());
}

// `axes`: how x lies. A width that is cut (q/k norm with heads on `tensor`) is left to the
// compiler.
Value Norm(const Config& config, Value x, Value scale, const std::vector<std::string>& axes) {
  RmsNormOptions options{.rounding = config.norm_rounding, .sharding = {}};
  if (OnSeveralDevices(x)) {
    const Sharding sharding = ShardingOf(x, axes);
    if (sharding.dims.back().empty()) options.sharding = sharding;
  }
  return RmsNorm(x, scale, static_cast<float>(config.rms_norm_eps), options);
}

const std::vector<std::string>& ResidualAxes() {
  static const std::vector<std::string> axes = {"batch", "seq", ""};
  return axes;
}

// x [B,T,heads*H] -> [B,T,heads,H]
Value SplitHeads(const Config& config, Value x, const char* heads) {
  const Value split = Reshape(x, {x.dim(0), x.dim(1), x.dim(2) / config.head_dim, config.head_dim});
  return ShardAs(split, {"batch", "seq", heads, ""});
}

Value Attend(const Config& config, LayerType type, const Qkv& qkv, Value segment_ids) {
  AttentionOptions options{.window = type == LayerType::kFull ? 0 : config.sliding_window,
                           .scale = 0,
                           .segment_ids = segment_ids,
                           .block = 0,
                           .sharding = {}};
  if (OnSeveralDevices(qkv.q)) {
    const Sharding sharding = ShardingOf(qkv.q, {"batch", "seq", "heads", ""});
    // Key-value heads that do not divide leave the cut to the compiler.
    if (ValidateAttentionSharding(qkv.q.graph().mesh(), qkv.q.shape(), qkv.k.shape(), sharding)
            .ok()) {
      options.sharding = sharding;
    }
  }
  return Attention(qkv.q, qkv.k, qkv.v, options);
}

const RematChoice& Remat(const ForwardOptions& options) {
  const Result<const RematChoice*> choice = RematByName(options.remat);
  CHECK(choice.ok(), "{}", choice.status().ToString());
  return **choice;
}

// The layer under the policy: run again in the backward pass, from x and the weights.
Value LayerUnderPolicy(const Config& config, const LayerWeights& weights, LayerType type, Value x,
                       const RopeTables& rope, Value segment_ids, const ForwardOptions& options,
                       const std::string& name) {
  const RematChoice& remat = Remat(options);
  if (!remat.layer) {
    return ApplyLayer(config, weights, type, x, rope, segment_ids, options, name);
  }
  Values inputs = weights.All();
  inputs.push_back(x);
  const auto body = [&](Values in) {
    const auto w = LayerWeights::From(std::span(in).first(in.size() - 1));
    return Values{ApplyLayer(config, w, type, in.back(), rope, segment_ids, options, name)};
  };
  return graph::Remat(inputs, body, {.save = remat.save})[0];
}

// A flag that is always true, for no token is negative, but which no compiler can know.
Value AlwaysTrue(Value tokens) {
  const Value first = Reshape(Slice(tokens, {0, 0}, {1, 1}), {});
  return Compare(graph::Cmp::kGt, first, SplatLike(first, -1024));
}

// A layer outside a loop. Under a policy it stands in a branch: where its first and second run
// stand side by side, XLA on CPUs merges them and keeps what the policy would drop, and one layer's
// blocks lie in memory beside another's.
Value LayerAlone(const Config& config, const LayerWeights& weights, LayerType type, Value x,
                 const RopeTables& rope, const Inputs& inputs, const ForwardOptions& options,
                 const std::string& name) {
  const auto layer = [&] {
    return LayerUnderPolicy(config, weights, type, x, rope, inputs.segment_ids, options, name);
  };
  if (!Remat(options).layer) return layer();
  return graph::Cond(
      AlwaysTrue(inputs.tokens), [&] { return Values{layer()}; }, [&] { return Values{x}; })[0];
}

// All places of one group. weights: the tensors of every place, one after another.
Value ApplyGroup(const Config& config, const Values& weights, Value x, const RopeTables& rope,
                 Value segment_ids, const ForwardOptions& options) {
  const size_t kinds = LayerTensorKinds().size();
  const auto body = [&](Values in) {
    Value y = in.back();
    for (size_t place = 0; place < config.layer_pattern.size(); ++place) {
      graph::Scope scope(y.graph(), fmt::format("place_{}", place));
      const auto w = LayerWeights::From(std::span(in).subspan(place * kinds, kinds));
      y = LayerUnderPolicy(config, w, config.layer_pattern[place], y, rope, segment_ids, options,
                           "");
    }
    return Values{y};
  };
  Values inputs = weights;
  inputs.push_back(x);
  return Remat(options).group ? graph::Remat(inputs, body)[0] : body(inputs)[0];
}

Value ScanGroups(const Config& config, const Weights& weights, Value x, const RopeTables& rope,
                 Value segment_ids, const ForwardOptions& options) {
  Values stacks;
  for (const LayerWeights& stack : weights.stacks) {
    for (Value v : stack.All()) stacks.push_back(v);
  }
  return graph::Scan({x}, stacks,
                     [&](Values carry, Values group) {
                       return graph::ScanStep{
                           {ApplyGroup(config, group, carry[0], rope, segment_ids, options)}, {}};
                     })
      .carry[0];
}

// 0, 1, ... [1,T]. The barrier keeps compilers from computing tables of cosines themselves.
Value DefaultPositions(Value tokens) {
  const Value iota = Iota(tokens.graph(), {DType::kI32, {1, tokens.dim(1)}}, 1);
  return graph::OptimizationBarrier({iota})[0];
}

}  // namespace

LayerWeights LayerWeights::From(std::span<const Value> v) {
  CHECK(v.size() == LayerTensorKinds().size(), "{} tensors for a layer", v.size());
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]};
}

Values LayerWeights::All() const {
  return {q_proj,
          k_proj,
          v_proj,
          o_proj,
          q_norm,
          k_norm,
          gate_proj,
          up_proj,
          down_proj,
          post_attention_norm,
          post_feedforward_norm};
}

Values DeclareParameters(graph::Graph& graph, const Config& config, Loc loc) {
  Values values;
  for (const ParameterSpec& spec : Parameters(config)) {
    values.push_back(graph.Parameter(spec.name, spec.type, graph.ShardingFor(spec.axes, loc), loc));
  }
  return values;
}

Weights BindWeights(const Config& config, const Values& values) {
  const LayerGroups groups = GroupLayers(config);
  const size_t kinds = LayerTensorKinds().size();
  const size_t want = Parameters(config).size();
  CHECK(values.size() == want, "{} values for {} parameters", values.size(), want);
  Weights weights;
  size_t next = 0;
  const auto layer = [&] {
    next += kinds;
    return LayerWeights::From(std::span(values).subspan(next - kinds, kinds));
  };
  weights.embedding = values[next++];
  for (int64_t place = 0; groups.num_groups > 0 && place < groups.period; ++place) {
    weights.stacks.push_back(layer());
  }
  for (int64_t l = 0; l < groups.num_single; ++l) weights.singles.push_back(layer());
  weights.final_norm = values[next++];
  weights.head = config.tie_word_embeddings ? weights.embedding : values[next++];
  return weights;
}

LayerWeights WeightsOfLayer(const Config& config, const Weights& weights, int64_t layer) {
  const LayerGroups groups = GroupLayers(config);
  if (layer >= groups.num_grouped()) {
    return weights.singles[static_cast<size_t>(layer - groups.num_grouped())];
  }
  const int64_t group = layer / groups.period;
  Values own;
  for (Value stack : weights.stacks[static_cast<size_t>(layer % groups.period)].All()) {
    Dims starts(static_cast<size_t>(stack.rank()), 0), limits = stack.shape().dims();
    starts[0] = group;
    limits[0] = group + 1;
    const Dims shape(limits.begin() + 1, limits.end());
    own.push_back(Reshape(Slice(stack, starts, limits), Shape(shape)));
  }
  return LayerWeights::From(own);
}

Value Embed(const Config& config, const Weights& weights, Value tokens,
            const ForwardOptions& options) {
  graph::Scope scope(tokens.graph(), "embedding");
  CHECK(tokens.rank() == 2, "tokens are {}, expected [B,T]", tokens.type().ToString());
  // Rows are rounded after the lookup: the gradient is summed over tokens in f32.
  const Value x = ShardAs(Convert(Take(weights.embedding, tokens), options.dtype), ResidualAxes());
  CHECK_SHAPE(x, {tokens.dim(0), tokens.dim(1), config.hidden_size});
  Note(options, "embedding", x);
  return x;
}

RopeTables MakeRopeTables(const Config& config, Value positions) {
  graph::Scope scope(positions.graph(), "rope");
  const auto table = [&](LayerType type) {
    return MakeRopeTable(positions, ComputeRopeFrequencies(config.rope_theta, config.head_dim,
                                                           config.yarn_of(type)));
  };
  const RopeTable full = table(LayerType::kFull);
  const bool same = config.yarn_of(LayerType::kSliding) == config.yarn_of(LayerType::kFull);
  return {.sliding = same ? full : table(LayerType::kSliding), .full = full};
}

Qkv ComputeQkv(const Config& config, const LayerWeights& w, Value x, const RopeTable& rope,
               const ForwardOptions& options, const std::string& name) {
  graph::Scope scope(x.graph(), "qkv");
  const auto normed = [&](Value projection, Value scale, const char* heads, const char* what) {
    const Value y = Norm(config, ShardAs(Linear(x, projection), {"batch", "seq", heads}), scale,
                         {"batch", "seq", heads});
    Note(options, name + what, y);
    return SplitHeads(config, y, heads);
  };
  const auto rotated = [&](Value y, const char* mark, const char* what) {
    const Value z = CheckpointName(ApplyRope(y, rope, config.rotation), mark);
    Note(options, name + what, z);
    return z;
  };
  Qkv qkv;
  qkv.q = rotated(normed(w.q_proj, w.q_norm, "heads", "q_norm"), kQuery, "q_rope");
  qkv.k = rotated(normed(w.k_proj, w.k_norm, "kv", "k_norm"), kKey, "k_rope");
  qkv.v = CheckpointName(
      SplitHeads(config, ShardAs(Linear(x, w.v_proj), {"batch", "seq", "kv"}), "kv"), kValue);
  CHECK_SHAPE(qkv.q, {x.dim(0), x.dim(1), config.num_heads, config.head_dim});
  CHECK_SHAPE(qkv.v, {x.dim(0), x.dim(1), config.num_kv_heads, config.head_dim});
  return qkv;
}

Value AddAttention(const Config& config, const LayerWeights& w, Value x, Value attended,
                   const ForwardOptions& options, const std::string& name) {
  graph::Scope scope(x.graph(), "attention_out");
  const Value joined = Reshape(attended, {x.dim(0), x.dim(1), config.num_heads * config.head_dim});
  const Value out = CheckpointName(ShardAs(Linear(joined, w.o_proj), ResidualAxes()), kOutProj);
  Note(options, name + "attention", out);
  return x + Norm(config, out, w.post_attention_norm, ResidualAxes());
}

Value AddMlp(const Config& config, const LayerWeights& w, Value x, const ForwardOptions& options,
             const std::string& name) {
  graph::Scope scope(x.graph(), "mlp");
  const auto up = [&](Value weight, const char* mark) {
    return CheckpointName(ShardAs(Linear(x, weight), {"batch", "seq", "mlp"}), mark);
  };
  const Value hidden = Silu(up(w.gate_proj, kMlpGate)) * up(w.up_proj, kMlpUp);  // [B,T,F]
  const Value out = CheckpointName(ShardAs(Linear(hidden, w.down_proj), ResidualAxes()), kMlpOut);
  Note(options, name + "mlp", out);
  return x + Norm(config, out, w.post_feedforward_norm, ResidualAxes());
}

Value ApplyLayer(const Config& config, const LayerWeights& weights, LayerType type, Value x,
                 const RopeTables& rope, Value segment_ids, const ForwardOptions& options,
                 const std::string& name) {
  const Qkv qkv = ComputeQkv(config, weights, x, rope.of(type), options, name);
  Value y = AddAttention(config, weights, x, Attend(config, type, qkv, segment_ids), options, name);
  y = ShardAs(AddMlp(config, weights, y, options, name), ResidualAxes());
  Note(options, name + "output", y);
  return y;
}

Value FinalNorm(const Config& config, const Weights& weights, Value x) {
  graph::Scope scope(x.graph(), "final_norm");
  return Norm(config, x, weights.final_norm, ResidualAxes());
}

Value Hidden(const Config& config, const Weights& weights, const Inputs& inputs,
             const ForwardOptions& options) {
  CHECK(!options.capture || (!options.scan && !Remat(options).layer),
        "captured values cannot leave a scan or remat; run with scan = false, remat = none");
  Value x = Embed(config, weights, inputs.tokens, options);
  const RopeTables rope =
      MakeRopeTables(config, inputs.positions ? inputs.positions : DefaultPositions(inputs.tokens));
  graph::Scope scope(x.graph(), "layers");
  int64_t first = 0;
  // A loop of one pass would be unrolled by compilers, which then undo rematerialisation.
  if (options.scan && GroupLayers(config).num_groups > 1) {
    x = ScanGroups(config, weights, x, rope, inputs.segment_ids, options);
    first = GroupLayers(config).num_grouped();
  }
  for (int64_t layer = first; layer < config.num_layers; ++layer) {
    x = LayerAlone(config, WeightsOfLayer(config, weights, layer), config.layer_type(layer), x,
                   rope, inputs, options, fmt::format("layers.{}.", layer));
  }
  const Value hidden = FinalNorm(config, weights, x);
  Note(options, "final_norm", hidden);
  return hidden;
}

Value Logits(const Config& config, const Weights& weights, Value hidden,
             const ForwardOptions& options) {
  graph::Scope scope(hidden.graph(), "logits");
  Value head = weights.head;
  if (head.dim(0) != config.vocab_size) {
    head = Slice(head, {0, 0}, {config.vocab_size, config.hidden_size});
  }
  const DType dtype = options.logits_in_f32 ? DType::kF32 : hidden.dtype();
  const graph::DotDims dims{{}, {}, {hidden.rank() - 1}, {1}};
  const Value logits =
      DotGeneral(Convert(hidden, dtype), Convert(head, dtype), dims,
                 {.result = DType::kF32, .highest_precision = dtype == DType::kF32});
  Note(options, "logits", logits);
  return logits;
}

Value DocumentPositions(Value segment_ids) {
  CHECK(segment_ids.rank() == 2, "segment ids are {}, expected [B,T]",
        segment_ids.type().ToString());
  const int64_t B = segment_ids.dim(0), T = segment_ids.dim(1);
  graph::Graph& graph = segment_ids.graph();
  const TensorType type{DType::kI32, {B, T}};
  const Value index = Iota(graph, type, 1);
  const auto shifted = [&](Value x, int64_t by, double fill) {
    return Pad(Slice(x, {0, 0}, {B, T - by}), fill, {0, by}, {0, 0});
  };
  Value start = index;
  if (T > 1) {
    const Value is_start = Or(Compare(graph::Cmp::kNe, segment_ids, shifted(segment_ids, 1, 0)),
                              Compare(graph::Cmp::kEq, index, ZerosLike(index)));
    start = Select(is_start, index, ZerosLike(index));
  }
  // Running maximum by doubling: the last start at or before t.
  for (int64_t by = 1; by < T; by *= 2) start = Max(start, shifted(start, by, 0));
  return index - start;
}

Value ShiftLabels(Value tokens, Value loss_mask) {
  const int64_t B = tokens.dim(0), T = tokens.dim(1);
  Value labels = Convert(tokens, DType::kI32);
  if (loss_mask) {
    const Value counts = loss_mask.dtype() == DType::kBool
                             ? loss_mask
                             : Compare(graph::Cmp::kNe, loss_mask, ZerosLike(loss_mask));
    labels = Select(counts, labels, SplatLike(labels, -100));
  }
  return Pad(Slice(labels, {0, 1}, {B, T}), -100, {0, 0}, {0, 1});
}

LossSums ComputeLossSums(const Config& config, const Weights& weights, Value hidden, Value labels,
                         const ForwardOptions& options) {
  graph::Scope scope(hidden.graph(), "loss");
  CrossEntropyOptions ce{.vocab_size = config.vocab_size};
  if (OnSeveralDevices(hidden)) {
    ce.sharding = ShardingOf(hidden, ResidualAxes());
    ce.head_sharding = ShardingOf(weights.head, {"vocab", "embed"});
  }
  const Value x = options.logits_in_f32 ? Convert(hidden, DType::kF32) : hidden;
  const CrossEntropyResult result = CrossEntropy(x, weights.head, labels, ce);
  const Value counts = Convert(IsToken(labels, config.vocab_size), DType::kF32);
  return {.nll = ReduceSum(result.nll * counts, {0, 1}),
          .z = ReduceSum(Square(result.logsumexp) * counts, {0, 1}),
          .count = ReduceSum(counts, {0, 1})};
}

}  // namespace ulmus::nn::olmo3
