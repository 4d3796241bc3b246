#include "nn/attention.h"

#include <algorithm>
#include <cmath>

#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::nn {
namespace {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

// Score of a pair that may not meet. Finite, so that a row whose first block is masked whole has no
// inf - inf; what such a block adds is scaled by exp(-1e30 - max) = 0 later.
constexpr double kMasked = -1e30;

// ---- the portable form: loops over blocks ----

// Sizes of one call. Queries and keys are padded to whole blocks: a padded key lies after every
// query, so the causal rule hides it, and rows of padded queries are cut off or have zero
// cotangents.
struct Sizes {
  int64_t B, T, S, N, K, H;  // T queries, S keys
  int64_t block, window;
  double scale;
  DType dtype;
  bool gap;  // may keys before some position be no keys at all?

  int64_t G() const { return N / K; }  // query heads per key head
  int64_t query_blocks() const { return (T + block - 1) / block; }
  int64_t key_blocks() const { return (S + block - 1) / block; }
};

Sizes SizesOf(const KernelAttrs& attrs, Value q, Value k) {
  return {.B = q.dim(0),
          .T = q.dim(1),
          .S = k.dim(1),
          .N = q.dim(2),
          .K = k.dim(2),
          .H = q.dim(3),
          .block = std::get<int64_t>(attrs.at("block")),
          .window = std::get<int64_t>(attrs.at("window")),
          .scale = static_cast<double>(std::get<float>(attrs.at("scale"))),
          .dtype = q.dtype(),
          .gap = std::get<int64_t>(attrs.at("gap")) != 0};
}

Value Int(Graph& graph, int64_t value) {
  return Splat(graph, static_cast<double>(value), {DType::kI32, {}});
}

// x along axis 1, padded with zeros to whole blocks: [B,T,...] -> [B,n,block,...].
Value CutIntoBlocks(Value x, int64_t block) {
  const int64_t n = (x.dim(1) + block - 1) / block, padding = n * block - x.dim(1);
  if (padding > 0) {
    Dims none(static_cast<size_t>(x.rank()), 0), high = none;
    high[1] = padding;
    x = Pad(x, 0, none, high);
  }
  Dims dims = x.shape().dims();
  dims[1] = block;
  dims.insert(dims.begin() + 1, n);
  return Reshape(x, Shape(dims));
}

// [B,T,N,H] -> [n,B,K,G,block,H]: blocks in front, where loops take them from, heads as batch axes.
Value QueryBlocks(Value q, const Sizes& z) {
  const Value cut = CutIntoBlocks(q, z.block);
  const Value grouped = Reshape(cut, {z.B, z.query_blocks(), z.block, z.K, z.G(), z.H});
  return Transpose(grouped, {1, 0, 3, 4, 2, 5});
}

Value FromQueryBlocks(Value blocks, const Sizes& z) {
  const Value rows = Transpose(blocks, {1, 0, 4, 2, 3, 5});
  const Value all = Reshape(rows, {z.B, z.query_blocks() * z.block, z.N, z.H});
  return Slice(all, {0, 0, 0, 0}, {z.B, z.T, z.N, z.H});
}

// One number per query: [B,N,T] <-> [n,B,K,G,block].
Value QueryNumberBlocks(Value x, const Sizes& z) {
  const Value cut = CutIntoBlocks(Reshape(x, {z.B * z.N, z.T}), z.block);
  const Value grouped = Reshape(cut, {z.B, z.K, z.G(), z.query_blocks(), z.block});
  return Transpose(grouped, {3, 0, 1, 2, 4});
}

Value FromQueryNumberBlocks(Value blocks, const Sizes& z) {
  const Value rows = Transpose(blocks, {1, 2, 3, 0, 4});
  const Value all = Reshape(rows, {z.B, z.N, z.query_blocks() * z.block});
  return Slice(all, {0, 0, 0}, {z.B, z.N, z.T});
}

// [B,S,K,H] -> [n,B,K,block,H].
Value KeyBlocks(Value k, const Sizes& z) {
  return Transpose(CutIntoBlocks(k, z.block), {1, 0, 3, 2, 4});
}

Value FromKeyBlocks(Value blocks, const Sizes& z) {
  const Value rows = Transpose(blocks, {1, 0, 3, 2, 4});
  const Value all = Reshape(rows, {z.B, z.key_blocks() * z.block, z.K, z.H});
  return Slice(all, {0, 0, 0, 0}, {z.B, z.S, z.K, z.H});
}

// [B,T] -> [n,B,block].
Value SegmentBlocks(Value ids, const Sizes& z) {
  return Transpose(CutIntoBlocks(ids, z.block), {1, 0, 2});
}

Values StartsOf(Value stack, Value index) {
  Values starts(static_cast<size_t>(stack.rank()), Int(stack.graph(), 0));
  starts[0] = index;
  return starts;
}

Value BlockAt(Value stack, Value index) {
  Dims dims = stack.shape().dims();
  dims[0] = 1;
  const Value block = DynamicSlice(stack, StartsOf(stack, index), dims);
  return Reshape(block, Shape(Dims(dims.begin() + 1, dims.end())));
}

// stack with `term` added to block `index`.
Value AddToBlock(Value stack, Value term, Value index) {
  Dims dims = term.shape().dims();
  dims.insert(dims.begin(), 1);
  const Value sum = BlockAt(stack, index) + term;
  return DynamicUpdateSlice(stack, Reshape(sum, Shape(dims)), StartsOf(stack, index));
}

// A block of queries and what belongs to it.
struct QueryBlock {
  Value q;         // [B,K,G,block,H]
  Value segments;  // [B,block] or null
  Value position;  // of its first query among the keys
  Value first;     // the first key there is
};

// Numbers [low, high) of the key blocks that some query of the block reaches.
struct KeyRange {
  Value low, high;
};
KeyRange ReachedBlocks(const QueryBlock& query, const Sizes& z) {
  Graph& graph = query.q.graph();
  const Value block = Int(graph, z.block), last = query.position + static_cast<double>(z.block - 1);
  const Value high = Min(last / block + 1.0, Int(graph, z.key_blocks()));
  if (z.window == 0) return {query.first / block, high};
  const Value edge = query.position - static_cast<double>(z.window - 1);
  return {Max(edge, query.first) / block, high};
}

// The key blocks, and one of them.
struct Keys {
  Value k, v;      // [n,B,K,block,H]
  Value segments;  // [n,B,block] or null
};

// bool [B,K,G,block,block]: may the query meet the key?
Value Meets(const QueryBlock& query, const Keys& keys, Value j, const Sizes& z) {
  Graph& graph = j.graph();
  const Shape all{z.B, z.K, z.G(), z.block, z.block};
  const TensorType square{DType::kI32, {z.block, z.block}};
  const Value ahead = query.position - j * static_cast<double>(z.block);
  const Value distance =
      Iota(graph, square, 0) - Iota(graph, square, 1) + BroadcastInDim(ahead, square.shape, {});
  Value meets = Compare(Cmp::kGe, distance, ZerosLike(distance));
  if (z.window > 0) {
    const Value width = SplatLike(distance, static_cast<double>(z.window));
    meets = And(meets, Compare(Cmp::kLt, distance, width));
  }
  if (z.gap) {
    const Value key =
        Iota(graph, square, 1) + BroadcastInDim(j * static_cast<double>(z.block), square.shape, {});
    meets = And(meets, Compare(Cmp::kGe, key, BroadcastInDim(query.first, square.shape, {})));
  }
  meets = BroadcastInDim(meets, all, {3, 4});
  if (!query.segments) return meets;
  const Value own = BroadcastInDim(query.segments, all, {0, 3});
  const Value other = BroadcastInDim(BlockAt(keys.segments, j), all, {0, 4});
  return And(meets, Compare(Cmp::kEq, own, other));
}

DotOptions Accumulate(const Sizes& z) {
  return {.result = DType::kF32, .highest_precision = z.dtype == DType::kF32};
}

// Scores of the query block with key block j, masked: f32 [B,K,G,block,block].
Value Scores(const QueryBlock& query, const Keys& keys, Value j, const Sizes& z) {
  const Value products =
      DotGeneral(query.q, BlockAt(keys.k, j), {{0, 1}, {0, 1}, {4}, {3}}, Accumulate(z));
  return Select(Meets(query, keys, j, z), products * z.scale, SplatLike(products, kMasked));
}

// One number per query, along the keys or the head.
Value Along(Value x, Value wide) { return BroadcastInDim(x, wide.shape(), {0, 1, 2, 3}); }

// Calls step(j, state) for each key block in reach.
Values OverKeyBlocks(const QueryBlock& query, Values state, const Sizes& z,
                     const std::function<Values(Value j, Values state)>& step) {
  const KeyRange range = ReachedBlocks(query, z);
  state.insert(state.begin(), range.low);
  Values last = While(
      state, [&](Values s) { return Compare(Cmp::kLt, s[0], range.high); },
      [&](Values s) {
        Values next = step(s[0], Values(s.begin() + 1, s.end()));
        next.insert(next.begin(), s[0] + 1.0);
        return next;
      });
  last.erase(last.begin());
  return last;
}

// result and log-sum-exp of one query block.
Values AttendBlock(const QueryBlock& query, const Keys& keys, const Sizes& z) {
  Graph& graph = query.q.graph();
  const TensorType per_query{DType::kF32, {z.B, z.K, z.G(), z.block}};
  const TensorType wide{DType::kF32, {z.B, z.K, z.G(), z.block, z.H}};
  const Values init{Splat(graph, kMasked, per_query), Splat(graph, 0, per_query),
                    Splat(graph, 0, wide)};
  const Values last = OverKeyBlocks(query, init, z, [&](Value j, Values state) {
    const Value s = Scores(query, keys, j, z);
    const Value top = Max(state[0], ReduceMax(s, {4}));
    const Value p = Exp(s - Along(top, s));
    const Value shrink = Exp(state[0] - top);
    const Value pv = DotGeneral(Convert(p, z.dtype), BlockAt(keys.v, j), {{0, 1}, {0, 1}, {4}, {2}},
                                Accumulate(z));
    return Values{top, state[1] * shrink + ReduceSum(p, {4}),
                  state[2] * Along(shrink, state[2]) + pv};
  });
  return {Convert(last[2] / Along(last[1], last[2]), z.dtype), last[0] + Log(last[1])};
}

Value Offset(Value offset, Value i, const Sizes& z) {
  return offset + i * static_cast<double>(z.block);
}

Value Counter(Graph& graph, int64_t length) { return Iota(graph, {DType::kI32, {length}}, 0); }

// inputs: q [B,T,N,H], k and v [B,S,K,H], i32 scalars: position of the first query among the keys,
// first key there is (0 unless attribute `gap`); then, if documents are masked, segment ids of the
// queries [B,T] and of the keys [B,S].
// results: out [B,T,N,H] in q's dtype, log-sum-exp of the scores f32 [B,N,T].
Values Forward(const KernelAttrs& attrs, Values inputs) {
  const bool segments = inputs.size() > 5;
  const Sizes z = SizesOf(attrs, inputs[0], inputs[1]);
  const Value offset = inputs[3], first = inputs[4];
  const Keys keys{KeyBlocks(inputs[1], z), KeyBlocks(inputs[2], z),
                  segments ? SegmentBlocks(inputs[6], z) : Value()};
  Values xs{Counter(offset.graph(), z.query_blocks()), QueryBlocks(inputs[0], z)};
  if (segments) xs.push_back(SegmentBlocks(inputs[5], z));
  const Values blocks =
      Scan({}, xs, [&](Values, Values x) {
        const QueryBlock query{x[1], segments ? x[2] : Value(), Offset(offset, x[0], z), first};
        return ScanStep{{}, AttendBlock(query, keys, z)};
      }).ys;
  return {FromQueryBlocks(blocks[0], z), FromQueryNumberBlocks(blocks[1], z)};
}

// With p = exp(s - lse), dp = dout v^T and delta = sum_h(dout * out):
//   ds = p * (dp - delta) * scale, dq = ds k, dk = ds^T q, dv = p^T dout.
// inputs: q, k, v and the two scalars as above, out, lse, dout, then the segment ids.
// results: dq in q's dtype, dk and dv in f32: they may still be summed over devices.
Values Backward(const KernelAttrs& attrs, Values inputs) {
  const bool segments = inputs.size() > 8;
  const Sizes z = SizesOf(attrs, inputs[0], inputs[1]);
  const Value offset = inputs[3], first = inputs[4];
  const Keys keys{KeyBlocks(inputs[1], z), KeyBlocks(inputs[2], z),
                  segments ? SegmentBlocks(inputs[9], z) : Value()};
  const Value products = Convert(inputs[5], DType::kF32) * Convert(inputs[7], DType::kF32);
  const Value delta = Transpose(ReduceSum(products, {3}), {0, 2, 1});
  Values xs{Counter(offset.graph(), z.query_blocks()), QueryBlocks(inputs[0], z),
            QueryBlocks(inputs[7], z), QueryNumberBlocks(inputs[6], z),
            QueryNumberBlocks(delta, z)};
  if (segments) xs.push_back(SegmentBlocks(inputs[8], z));

  const Value none = Splat(offset.graph(), 0, {DType::kF32, keys.k.shape()});
  const ScanStep all = Scan({none, none}, xs, [&](Values sums, Values x) {
    const QueryBlock query{x[1], segments ? x[5] : Value(), Offset(offset, x[0], z), first};
    const Value dout = x[2], lse = x[3], row_delta = x[4];
    const Value dq0 = Splat(offset.graph(), 0, {DType::kF32, query.q.shape()});
    const Values last =
        OverKeyBlocks(query, {dq0, sums[0], sums[1]}, z, [&](Value j, Values state) {
          const Value s = Scores(query, keys, j, z);
          const Value p = Exp(s - Along(lse, s));
          const Value dp =
              DotGeneral(dout, BlockAt(keys.v, j), {{0, 1}, {0, 1}, {4}, {3}}, Accumulate(z));
          const Value ds = Convert(p * (dp - Along(row_delta, dp)) * z.scale, z.dtype);
          const Value dq =
              DotGeneral(ds, BlockAt(keys.k, j), {{0, 1}, {0, 1}, {4}, {2}}, Accumulate(z));
          const DotDims over_queries{{0, 1}, {0, 1}, {2, 3}, {2, 3}};
          const Value dk = DotGeneral(ds, query.q, over_queries, Accumulate(z));
          const Value dv = DotGeneral(Convert(p, z.dtype), dout, over_queries, Accumulate(z));
          return Values{state[0] + dq, AddToBlock(state[1], dk, j), AddToBlock(state[2], dv, j)};
        });
    return ScanStep{{last[1], last[2]}, {Convert(last[0], z.dtype)}};
  });
  return {FromQueryBlocks(all.ys[0], z), FromKeyBlocks(all.carry[0], z),
          FromKeyBlocks(all.carry[1], z)};
}

struct Kernels {
  KernelDef forward, backward;
};

// Where each device has its own block, a platform's kernel may stand: its target goes here. What is
// left to the compiler's partitioning never uses one.
const Kernels& KernelsFor(bool own_block) {
  static const Kernels kOwnBlock{{"attention", Forward, nullptr, {}},
                                 {"attention_backward", Backward, nullptr, {}}};
  static const Kernels kPartitioned{{"attention", Forward, nullptr, {}},
                                    {"attention_backward", Backward, nullptr, {}}};
  return own_block ? kOwnBlock : kPartitioned;
}

// ---- the place on a mesh ----

// How the tensors of one call lie on the mesh.
struct Layout {
  Sharding rows;  // of q, k, v, out: [B,T,heads,H]
  bool manual = false, own_block = false;
  // Devices before a device along the sequence's axis whose keys its queries reach; -1: any may be.
  int64_t neighbours = -1;

  const std::vector<std::string>& sequence() const { return rows.dims[1]; }
  Sharding tokens() const { return {{rows.dims[0], rows.dims[1]}}; }                 // [B,T]
  Sharding numbers() const { return {{rows.dims[0], rows.dims[2], rows.dims[1]}}; }  // [B,N,T]
  std::vector<std::string> axes() const {
    std::vector<std::string> all;
    for (const auto& dim : rows.dims) all.insert(all.end(), dim.begin(), dim.end());
    return all;
  }
};

Layout LayoutOf(Value q, int64_t window, const std::optional<Sharding>& sharding) {
  Graph& graph = q.graph();
  if (!sharding) return {Sharding::Replicated(4), false, OnOneDevice(graph), -1};
  const bool cut = !sharding->IsReplicated();
  Layout layout{*sharding, cut, cut || OnOneDevice(graph), -1};
  if (window > 0 && layout.sequence().size() == 1) {
    const int64_t devices = graph.mesh().AxisSize(layout.sequence()[0]);
    const int64_t own = q.dim(1) / devices, neighbours = (window - 1 + own - 1) / own;
    if (neighbours + 1 < devices) layout.neighbours = neighbours;
  }
  return layout;
}

// `body` on each device's own blocks.
Values OnBlocks(const Layout& layout, Values inputs, std::vector<Sharding> in,
                std::vector<Sharding> out, const std::function<Values(Values)>& body,
                const Loc& loc) {
  if (!layout.manual) return body(std::move(inputs));
  return Manual(std::move(inputs), {std::move(in), std::move(out), layout.axes()}, body, loc);
}

// Keys (or values, or their segment ids) in reach of this device's queries, from the blocks that
// devices along the sequence's axes hold: those of the neighbours before it, or all.
Value KeysInReach(Value own, const Layout& layout) {
  if (layout.sequence().empty()) return own;
  if (layout.neighbours < 0) return AllGather(own, layout.sequence(), 1);
  Values blocks;
  for (int64_t away = layout.neighbours; away > 0; --away)
    blocks.push_back(CollectivePermute(own, layout.sequence()[0], away));
  blocks.push_back(own);
  return Concatenate(blocks, 1);
}

// The way back: the sum of what all devices have for this device's keys.
Value SumForOwnKeys(Value ct, const Layout& layout) {
  if (layout.sequence().empty()) return ct;
  if (layout.neighbours < 0) return ReduceScatter(ct, layout.sequence(), 1);
  const int64_t size = ct.dim(1) / (layout.neighbours + 1);
  const auto block = [&](int64_t away) {
    Dims starts(4, 0), limits = ct.shape().dims();
    limits[1] = ct.dim(1) - away * size;
    starts[1] = limits[1] - size;
    return Slice(ct, starts, limits);
  };
  Value sum = block(0);
  for (int64_t away = 1; away <= layout.neighbours; ++away)
    sum = sum + CollectivePermute(block(away), layout.sequence()[0], -away);
  return sum;
}

// Position of this device's first query among the keys in reach, and the first of those that is
// one: the neighbours of the first devices are the last ones, whose keys come later.
Values Positions(Value q, const Layout& layout) {
  Graph& graph = q.graph();
  const auto own = static_cast<double>(q.dim(1));
  const Value place = PlaceAlong(graph, layout.sequence());
  if (layout.neighbours < 0) return {place * own, Int(graph, 0)};
  const Value neighbours = Int(graph, layout.neighbours);
  return {neighbours * own, Max(neighbours - place, Int(graph, 0)) * own};
}

// q, k, v and the two positions as the kernels take them.
Values OwnInputs(const Values& x, const Layout& layout) {
  Values own{x[0], KeysInReach(x[1], layout), KeysInReach(x[2], layout)};
  for (Value position : Positions(x[0], layout)) own.push_back(position);
  return own;
}

// out and log-sum-exp of q, k, v and segment ids, if any.
Values Attend(const Layout& layout, const KernelAttrs& attrs, Values inputs, const Loc& loc) {
  std::vector<Sharding> in(3, layout.rows);
  if (inputs.size() > 3) in.push_back(layout.tokens());
  return OnBlocks(
      layout, std::move(inputs), std::move(in), {layout.rows, layout.numbers()},
      [&](Values x) {
        Values own = OwnInputs(x, layout);
        if (x.size() > 3) own.insert(own.end(), {x[3], KeysInReach(x[3], layout)});
        return KernelCall(KernelsFor(layout.own_block).forward, attrs, std::move(own), loc);
      },
      loc);
}

// dq, dk, dv from q, k, v, out, lse, dout and segment ids, if any.
Values AttendBackward(const Layout& layout, const KernelAttrs& attrs, Values inputs,
                      const Loc& loc) {
  std::vector<Sharding> in(6, layout.rows);
  in[4] = layout.numbers();
  if (inputs.size() > 6) in.push_back(layout.tokens());
  return OnBlocks(
      layout, std::move(inputs), std::move(in), std::vector<Sharding>(3, layout.rows),
      [&](Values x) {
        Values own = OwnInputs(x, layout);
        own.insert(own.end(), x.begin() + 3, x.begin() + 6);
        if (x.size() > 6) own.insert(own.end(), {x[6], KeysInReach(x[6], layout)});
        Values cts = KernelCall(KernelsFor(layout.own_block).backward, attrs, std::move(own), loc);
        for (const size_t i : {1, 2}) cts[i] = Convert(SumForOwnKeys(cts[i], layout), x[i].dtype());
        return cts;
      },
      loc);
}

// As attention_bench.cc measured on CPUs: the scores of a block should stay in the cache, and a
// narrow window wants little outside its band. Blocks of one size that leave the least padding.
int64_t ChooseBlock(int64_t T, int64_t reach) {
  const int64_t most = reach > 1024 ? 256 : reach > 64 ? 128 : 64;
  const int64_t blocks = (T + most - 1) / most;
  return (T + blocks - 1) / blocks;
}

void CheckShapes(Value q, Value k, Value v, const AttentionOptions& options, const Loc& loc) {
  CHECK_AT(loc, (q.dtype() == DType::kF32 || q.dtype() == DType::kBF16) && q.rank() == 4,
           "attention: q is {}, expected f32[B,T,N,H] or bf16[B,T,N,H]", q.type().ToString());
  CHECK_AT(loc,
           k.type() == v.type() && k.dtype() == q.dtype() && k.rank() == 4 &&
               k.dim(0) == q.dim(0) && k.dim(1) == q.dim(1) && k.dim(3) == q.dim(3),
           "attention: k is {}, v is {}; expected both {}[{},{},K,{}] for q {}",
           k.type().ToString(), v.type().ToString(), Name(q.dtype()), q.dim(0), q.dim(1), q.dim(3),
           q.type().ToString());
  CHECK_AT(loc, q.dim(2) % k.dim(2) == 0,
           "attention: {} query heads for {} key heads: {} % {} = {}, expected 0", q.dim(2),
           k.dim(2), q.dim(2), k.dim(2), q.dim(2) % k.dim(2));
  CHECK_AT(loc, options.window >= 0 && options.block >= 0,
           "attention: window {}, block {}: expected no negative number", options.window,
           options.block);
  const Value ids = options.segment_ids;
  const TensorType ids_type{DType::kI32, {q.dim(0), q.dim(1)}};
  CHECK_AT(loc, !ids || ids.type() == ids_type, "attention: segment_ids is {}, expected {}",
           ids ? ids.type().ToString() : "", ids_type.ToString());
}

}  // namespace

Status ValidateAttentionSharding(const Mesh& mesh, const Shape& q, const Shape& k,
                                 const Sharding& sharding) {
  if (sharding.dims.size() != 4 || !sharding.dims[3].empty()) {
    return InvalidArgumentError(
        "attention: sharding {}: expected four dimensions [B,T,N,H] and H whole",
        sharding.ToString());
  }
  const Status queries = ValidateSharding(mesh, q, sharding);
  if (!queries.ok()) return InvalidArgumentError("attention: q: {}", queries.message());
  const Status keys = ValidateSharding(mesh, k, sharding);
  if (!keys.ok()) return InvalidArgumentError("attention: k and v: {}", keys.message());
  return {};
}

Value Attention(Value q, Value k, Value v, AttentionOptions options, Loc loc) {
  CheckShapes(q, k, v, options, loc);
  Graph& graph = q.graph();
  if (options.sharding) {
    CHECK_AT(loc, ManualAxes(graph).empty(),
             "attention: a sharding inside Manual, where q is one device's block already");
    const Status valid =
        ValidateAttentionSharding(graph.mesh(), q.shape(), k.shape(), *options.sharding);
    CHECK_AT(loc, valid.ok(), "{}", valid.message());
  }
  const double scale =
      options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.dim(3)));
  // A window as wide as the sequence is none.
  const int64_t window = options.window >= q.dim(1) ? 0 : options.window;
  const Layout layout = LayoutOf(q, window, options.sharding);
  const int64_t own_queries = q.dim(1) / NumShards(graph.mesh(), layout.rows, 1);
  const int64_t block = options.block > 0
                            ? std::min(options.block, own_queries)
                            : ChooseBlock(own_queries, window > 0 ? window : q.dim(1));
  const KernelAttrs attrs{{"window", window},
                          {"scale", static_cast<float>(scale)},
                          {"block", block},
                          {"gap", int64_t{layout.neighbours > 0}}};

  // The residuals stand where remat policies see them; the gradient is the rule of an identity
  // behind them.
  Values inputs{StopGradient(q, loc), StopGradient(k, loc), StopGradient(v, loc)};
  if (options.segment_ids) inputs.push_back(options.segment_ids);
  const Values forward = Attend(layout, attrs, inputs, loc);
  Values all{q, k, v, CheckpointName(forward[0], "attention_out", loc),
             CheckpointName(forward[1], "attention_lse", loc)};
  if (options.segment_ids) all.push_back(options.segment_ids);
  return CustomGradient(
      all, [](Values x) { return CustomForward{{x[3]}, {}}; },
      [layout, attrs, loc](Values x, Values, Values cts) {
        Values operands{x[0], x[1], x[2], x[3], x[4], cts[0]};
        operands.insert(operands.end(), x.begin() + 5, x.end());
        Values grads = AttendBackward(layout, attrs, std::move(operands), loc);
        grads.resize(x.size());
        return grads;
      },
      loc)[0];
}

}  // namespace ulmus::nn
