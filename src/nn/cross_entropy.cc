#include "nn/cross_entropy.h"

#include <algorithm>

#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::nn {
namespace {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

// Logit of a row that does not count: exp(-1e30 - max) = 0, and no inf - inf in a block without
// any.
constexpr double kMasked = -1e30;

// ---- the portable form: loops over blocks of tokens and of the head's rows ----

// Sizes of one call: M tokens, V rows. Tokens are padded to whole blocks with zero x and zero
// cotangents. The last block of rows starts early enough to fit, which spares a padded copy of the
// head: rows it shares with the block before do not count in it.
struct Sizes {
  int64_t M, V, D;
  int64_t token_block, vocab_block;
  DType dtype;

  int64_t token_blocks() const { return (M + token_block - 1) / token_block; }
  int64_t vocab_blocks() const { return (V + vocab_block - 1) / vocab_block; }
};

Sizes SizesOf(const KernelAttrs& attrs, Value x, Value head) {
  const int64_t M = x.dim(0) * x.dim(1), V = head.dim(0);
  return {.M = M,
          .V = V,
          .D = x.dim(2),
          .token_block = std::min(std::get<int64_t>(attrs.at("token_block")), M),
          .vocab_block = std::min(std::get<int64_t>(attrs.at("vocab_block")), V),
          .dtype = x.dtype()};
}

Value Int(Graph& graph, int64_t value) {
  return Splat(graph, static_cast<double>(value), {DType::kI32, {}});
}

// [B,T,...] -> [n,token_block,...], padded with zeros.
Value TokenBlocks(Value x, const Sizes& z) {
  Dims dims(x.shape().dims().begin() + 1, x.shape().dims().end());
  dims[0] = z.M;
  x = Reshape(x, Shape(dims));
  const int64_t padding = z.token_blocks() * z.token_block - z.M;
  if (padding > 0) {
    Dims none(dims.size(), 0), high = none;
    high[0] = padding;
    x = Pad(x, 0, none, high);
  }
  dims[0] = z.token_block;
  dims.insert(dims.begin(), z.token_blocks());
  return Reshape(x, Shape(dims));
}

Value FromTokenBlocks(Value blocks, Shape shape, const Sizes& z) {
  Dims dims(blocks.shape().dims().begin() + 1, blocks.shape().dims().end());
  dims[0] *= z.token_blocks();
  Dims limits = dims;
  limits[0] = z.M;
  return Reshape(Slice(Reshape(blocks, Shape(dims)), Dims(dims.size(), 0), limits),
                 std::move(shape));
}

// One block of the head's rows.
struct Rows {
  Value start;  // i32
  Value head;   // [vocab_block,D]
  Value ids;    // i32 [token_block,vocab_block]: row of each logit
  Value count;  // bool, same shape: does it count here?
};

// `limit`: the first row that does not count (i32).
Rows RowsAt(Value head, Value block, Value limit, const Sizes& z) {
  Graph& graph = block.graph();
  const TensorType type{DType::kI32, {z.token_block, z.vocab_block}};
  const Value first = block * static_cast<double>(z.vocab_block);
  const Value start = Min(first, Int(graph, z.V - z.vocab_block));
  const Value ids = Iota(graph, type, 1) + BroadcastInDim(start, type.shape, {});
  const Value count = And(Compare(Cmp::kGe, ids, BroadcastInDim(first, type.shape, {})),
                          Compare(Cmp::kLt, ids, BroadcastInDim(limit, type.shape, {})));
  return {start, DynamicSlice(head, {start, Int(graph, 0)}, {z.vocab_block, z.D}), ids, count};
}

DotOptions Accumulate(const Sizes& z) {
  return {.result = DType::kF32, .highest_precision = z.dtype == DType::kF32};
}

// f32 [token_block,vocab_block].
Value Logits(Value x, const Rows& rows, const Sizes& z) {
  const Value logits = DotGeneral(x, rows.head, {{}, {}, {1}, {1}}, Accumulate(z));
  return Select(rows.count, logits, SplatLike(logits, kMasked));
}

Value PerToken(Value x, Value wide) { return BroadcastInDim(x, wide.shape(), {0}); }

// Where the row of a logit is the token's label; a row shared by two blocks is found once.
Value Hits(Value labels, const Rows& rows) {
  return And(Compare(Cmp::kEq, rows.ids, PerToken(labels, rows.ids)), rows.count);
}

Value Counter(Graph& graph, int64_t length) { return Iota(graph, {DType::kI32, {length}}, 0); }

// inputs: x [B,T,D], head [V,D] of one dtype; labels [B,T], rows of this head, anything else where
// the label is not among them; limit i32, the number of rows that count.
// results, f32 [B,T]: log-sum-exp over the rows that count, logit of the label (0 if it is not
// here).
Values Forward(const KernelAttrs& attrs, Values inputs) {
  const Sizes z = SizesOf(attrs, inputs[0], inputs[1]);
  const Value head = inputs[1], limit = inputs[3];
  Graph& graph = head.graph();
  const Value counter = Counter(graph, z.vocab_blocks());
  const auto tokens = [&](Values, Values block) {
    const Value x = block[0], labels = block[1];
    const TensorType per_token{DType::kF32, {z.token_block}};
    const Value zero = Splat(graph, 0, per_token);
    const auto step = [&](Values state, Values index) {
      const Rows rows = RowsAt(head, index[0], limit, z);
      const Value logits = Logits(x, rows, z);
      const Value top = Max(state[0], ReduceMax(logits, {1}));
      const Value sum = ReduceSum(Exp(logits - PerToken(top, logits)), {1});
      const Value own = ReduceSum(Select(Hits(labels, rows), logits, ZerosLike(logits)), {1});
      return ScanStep{{top, state[1] * Exp(state[0] - top) + sum, state[2] + own}, {}};
    };
    const Values last = Scan({Splat(graph, kMasked, per_token), zero, zero}, {counter}, step).carry;
    return ScanStep{{}, {last[0] + Log(last[1]), last[2]}};
  };
  const Values blocks = Scan({}, {TokenBlocks(inputs[0], z), TokenBlocks(inputs[2], z)}, tokens).ys;
  const Shape per_token{inputs[0].dim(0), inputs[0].dim(1)};
  return {FromTokenBlocks(blocks[0], per_token, z), FromTokenBlocks(blocks[1], per_token, z)};
}

// d logits = exp(logits - lse) * spread - [row is the label] * pull, from which dx = d logits head
// and dhead = d logits^T x.
// inputs: x, head, labels, limit as above, then f32 [B,T]: lse, spread, pull.
// results in f32, for they may still be summed over devices: dx [B,T,D], dhead [V,D].
Values Backward(const KernelAttrs& attrs, Values inputs) {
  const Sizes z = SizesOf(attrs, inputs[0], inputs[1]);
  const Value head = inputs[1], limit = inputs[3];
  Graph& graph = head.graph();
  const Value counter = Counter(graph, z.vocab_blocks());
  const auto tokens = [&](Values sums, Values block) {
    const Value x = block[0], labels = block[1], lse = block[2], spread = block[3], pull = block[4];
    const auto step = [&](Values state, Values index) {
      const Rows rows = RowsAt(head, index[0], limit, z);
      const Value logits = Logits(x, rows, z);
      const Value p = Exp(logits - PerToken(lse, logits)) * PerToken(spread, logits);
      const Value hit = Select(Hits(labels, rows), PerToken(pull, logits), ZerosLike(logits));
      // Rows masked here have logits of -1e30, but with an lse of that size they would not vanish.
      const Value ct = Convert(Select(rows.count, p - hit, ZerosLike(p)), z.dtype);
      const Value dx = DotGeneral(ct, rows.head, {{}, {}, {1}, {0}}, Accumulate(z));
      const Value drows = DotGeneral(ct, x, {{}, {}, {0}, {0}}, Accumulate(z));
      const Values place{rows.start, Int(graph, 0)};
      const Value before = DynamicSlice(state[1], place, {z.vocab_block, z.D});
      return ScanStep{{state[0] + dx, DynamicUpdateSlice(state[1], before + drows, place)}, {}};
    };
    const Value none = Splat(graph, 0, {DType::kF32, x.shape()});
    const Values last = Scan({none, sums[0]}, {counter}, step).carry;
    return ScanStep{{last[1]}, {last[0]}};
  };
  Values xs;
  for (const size_t i : {0, 2, 4, 5, 6}) xs.push_back(TokenBlocks(inputs[i], z));
  const ScanStep all = Scan({Splat(graph, 0, {DType::kF32, head.shape()})}, xs, tokens);
  return {FromTokenBlocks(all.ys[0], inputs[0].shape(), z), all.carry[0]};
}

struct Kernels {
  KernelDef forward, backward;
};

// As in attention.cc: a platform's target belongs to the first pair.
const Kernels& KernelsFor(bool own_block) {
  static const Kernels kOwnBlock{{"cross_entropy", Forward, nullptr, {}},
                                 {"cross_entropy_backward", Backward, nullptr, {}}};
  static const Kernels kPartitioned{{"cross_entropy", Forward, nullptr, {}},
                                    {"cross_entropy_backward", Backward, nullptr, {}}};
  return own_block ? kOwnBlock : kPartitioned;
}

// ---- the place on a mesh ----

using Axes = std::vector<std::string>;

// How the tensors of one call lie on the mesh, and the call's numbers.
struct Layout {
  Sharding x, head;
  bool manual = false, own_block = false;
  int64_t vocab_size = 0, counted_rows = 0;

  Sharding tokens() const { return {{x.dims[0], x.dims[1]}}; }
  const Axes& rows() const { return head.dims[0]; }
  const Axes& width() const { return head.dims[1]; }
  // Axes along which devices have tokens of their own.
  Axes token_axes() const {
    Axes axes = x.dims[0];
    axes.insert(axes.end(), x.dims[1].begin(), x.dims[1].end());
    return axes;
  }
  Axes axes() const {
    Axes all = token_axes();
    for (const Axes& more : head.dims) {
      for (const std::string& axis : more) {
        if (std::ranges::count(all, axis) == 0) all.push_back(axis);
      }
    }
    return all;
  }
};

Axes Without(const Axes& all, const Axes& some) {
  Axes rest;
  std::ranges::copy_if(all, std::back_inserter(rest), [&](const std::string& axis) {
    return std::ranges::count(some, axis) == 0;
  });
  return rest;
}

int64_t DevicesAlong(Graph& graph, const Axes& axes) {
  int64_t devices = 1;
  for (const std::string& axis : axes) devices *= graph.mesh().AxisSize(axis);
  return devices;
}

Values OnBlocks(const Layout& layout, Values inputs, std::vector<Sharding> in,
                std::vector<Sharding> out, const std::function<Values(Values)>& body,
                const Loc& loc) {
  if (!layout.manual) return body(std::move(inputs));
  return Manual(std::move(inputs), {std::move(in), std::move(out), layout.axes()}, body, loc);
}

// What a device computes with: its rows of the head in x's dtype, labels counted from its first
// row, and how many of its rows count.
struct OwnRows {
  Value head, labels, limit;
};
OwnRows OwnRowsOf(const Layout& layout, Value x, Value head, Value labels) {
  Graph& graph = x.graph();
  head = Convert(head, x.dtype());
  if (!layout.width().empty()) head = AllGather(head, layout.width(), 1);
  const Value place = PlaceAlong(graph, layout.rows());
  const Value first = place * static_cast<double>(head.dim(0));
  const Value own =
      Select(IsToken(labels, layout.vocab_size), labels - BroadcastInDim(first, labels.shape(), {}),
             SplatLike(labels, -1));
  return {head, own, Int(graph, layout.counted_rows) - first};
}

// nll and log-sum-exp.
Values Losses(const Layout& layout, const KernelAttrs& attrs, Values inputs, const Loc& loc) {
  const Sharding tokens = layout.tokens();
  return OnBlocks(
      layout, std::move(inputs), {layout.x, layout.head, tokens}, {tokens, tokens},
      [&](Values in) {
        const OwnRows own = OwnRowsOf(layout, in[0], in[1], in[2]);
        const Values parts = KernelCall(KernelsFor(layout.own_block).forward, attrs,
                                        {in[0], own.head, own.labels, own.limit}, loc);
        Value lse = parts[0], logit = parts[1];
        if (DevicesAlong(in[0].graph(), layout.rows()) > 1) {
          const Value all = AllGather(Reshape(lse, {lse.dim(0), lse.dim(1), 1}), layout.rows(), 2);
          lse = LogSumExp(all);
          logit = AllReduce(logit, layout.rows());
        }
        const Value nll = Select(IsToken(in[2], layout.vocab_size), lse - logit, ZerosLike(lse));
        return Values{nll, lse};
      },
      loc);
}

// dx and dhead from x, head, labels, lse and the cotangents of nll and lse.
Values LossesBackward(const Layout& layout, const KernelAttrs& attrs, Values inputs,
                      const Loc& loc) {
  const Sharding tokens = layout.tokens();
  return OnBlocks(
      layout, std::move(inputs), {layout.x, layout.head, tokens, tokens, tokens, tokens},
      {layout.x, layout.head},
      [&](Values in) {
        Graph& graph = in[0].graph();
        const OwnRows own = OwnRowsOf(layout, in[0], in[1], in[2]);
        const Value pull = Select(IsToken(in[2], layout.vocab_size), in[4], ZerosLike(in[4]));
        const Values cts =
            KernelCall(KernelsFor(layout.own_block).backward, attrs,
                       {in[0], own.head, own.labels, own.limit, in[3], pull + in[5], pull}, loc);
        Value dx = cts[0], dhead = cts[1];
        if (!layout.rows().empty()) dx = AllReduce(dx, layout.rows());
        if (!layout.width().empty()) {
          dhead = ReduceScatter(dhead, layout.width(), 1);
          // Along axes that cut the head's width but no tokens every device had the same sum.
          const int64_t equal = DevicesAlong(graph, Without(layout.width(), layout.token_axes()));
          if (equal > 1) dhead = dhead / static_cast<double>(equal);
        }
        const Axes rest = Without(layout.token_axes(), layout.width());
        if (!rest.empty()) dhead = AllReduce(dhead, rest);
        return Values{Convert(dx, in[0].dtype()), Convert(dhead, in[1].dtype())};
      },
      loc);
}

void CheckShapes(Value x, Value head, Value labels, const CrossEntropyOptions& options,
                 const Loc& loc) {
  CHECK_AT(loc, (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && x.rank() == 3,
           "cross_entropy: x is {}, expected f32[B,T,D] or bf16[B,T,D]", x.type().ToString());
  CHECK_AT(loc,
           head.rank() == 2 && head.dim(1) == x.dim(2) &&
               (head.dtype() == x.dtype() || head.dtype() == DType::kF32),
           "cross_entropy: head is {}, expected {}[V,{}] or f32[V,{}] for x {}",
           head.type().ToString(), Name(x.dtype()), x.dim(2), x.dim(2), x.type().ToString());
  const TensorType labels_type{DType::kI32, {x.dim(0), x.dim(1)}};
  CHECK_AT(loc, labels.type() == labels_type, "cross_entropy: labels is {}, expected {} for x {}",
           labels.type().ToString(), labels_type.ToString(), x.type().ToString());
  CHECK_AT(loc, options.vocab_size >= 0 && options.vocab_size <= head.dim(0),
           "cross_entropy: vocab_size {} for a head of {} rows", options.vocab_size, head.dim(0));
  CHECK_AT(loc, options.token_block >= 0 && options.vocab_block >= 0,
           "cross_entropy: blocks of {} tokens and {} rows: expected no negative number",
           options.token_block, options.vocab_block);
  CHECK_AT(loc, options.sharding || !options.head_sharding,
           "cross_entropy: a sharding of the head without one of x");
}

}  // namespace

Value IsToken(Value labels, int64_t vocab_size) {
  return And(Compare(Cmp::kGe, labels, ZerosLike(labels)),
             Compare(Cmp::kLt, labels, SplatLike(labels, static_cast<double>(vocab_size))));
}

Status ValidateCrossEntropySharding(const Mesh& mesh, const Shape& x, const Shape& head,
                                    const Sharding& x_sharding, const Sharding& head_sharding) {
  if (x_sharding.dims.size() != 3 || !x_sharding.dims[2].empty()) {
    return InvalidArgumentError(
        "cross_entropy: x sharding {}: expected three dimensions [B,T,D] and D whole",
        x_sharding.ToString());
  }
  const Status x_valid = ValidateSharding(mesh, x, x_sharding);
  if (!x_valid.ok()) return x_valid.WithContext("cross_entropy: x");
  const Status head_valid = ValidateSharding(mesh, head, head_sharding);
  if (!head_valid.ok()) return head_valid.WithContext("cross_entropy: head");
  for (const std::string& axis : head_sharding.dims[0]) {
    if (std::ranges::count(x_sharding.dims[0], axis) + std::ranges::count(x_sharding.dims[1], axis))
      return InvalidArgumentError(
          "cross_entropy: '{}' cuts the tokens of x {} and the rows of head {}; cut the head's "
          "width "
          "along it, or nothing",
          axis, x_sharding.ToString(), head_sharding.ToString());
  }
  return {};
}

CrossEntropyResult CrossEntropy(Value x, Value head, Value labels, CrossEntropyOptions options,
                                Loc loc) {
  CheckShapes(x, head, labels, options, loc);
  Graph& graph = x.graph();
  Layout layout{.x = options.sharding.value_or(Sharding::Replicated(3)),
                .head = options.head_sharding.value_or(Sharding::Replicated(2))};
  if (options.sharding) {
    CHECK_AT(loc, ManualAxes(graph).empty(),
             "cross_entropy: a sharding inside Manual, where x is one device's block already");
    const Status valid =
        ValidateCrossEntropySharding(graph.mesh(), x.shape(), head.shape(), layout.x, layout.head);
    CHECK_AT(loc, valid.ok(), "{}", valid.message());
  }
  layout.manual = !layout.axes().empty();
  layout.own_block = layout.manual || OnOneDevice(graph);
  layout.vocab_size = options.vocab_size > 0 ? options.vocab_size : head.dim(0);
  layout.counted_rows = options.padding == PaddingRows::kMasked ? layout.vocab_size : head.dim(0);
  // Blocks of 4 MB of logits; equal sides move the least of dx and dhead per product.
  const KernelAttrs attrs{
      {"token_block", options.token_block > 0 ? options.token_block : int64_t{1024}},
      {"vocab_block", options.vocab_block > 0 ? options.vocab_block : int64_t{1024}}};

  // As in attention.cc: the residual stands where remat policies see it.
  const Values forward =
      Losses(layout, attrs, {StopGradient(x, loc), StopGradient(head, loc), labels}, loc);
  const Value lse = CheckpointName(forward[1], "cross_entropy_lse", loc);
  const Value nll = CheckpointName(forward[0], "cross_entropy_nll", loc);
  const Values results = CustomGradient(
      {x, head, labels, lse, nll}, [](Values in) { return CustomForward{{in[4], in[3]}, {}}; },
      [layout, attrs, loc](Values in, Values, Values cts) {
        Values grads =
            LossesBackward(layout, attrs, {in[0], in[1], in[2], in[3], cts[0], cts[1]}, loc);
        grads.resize(in.size());
        return grads;
      },
      loc);
  return {results[0], results[1]};
}

}  // namespace ulmus::nn
