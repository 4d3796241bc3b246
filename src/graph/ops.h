// Every op a graph can hold. Shapes are checked here; a mismatch aborts naming the op, both shapes
// and the caller's line. Each op lives in graph/ops/<op>.cc; graph/functions.h builds common
// combinations (softmax, mean, ...).
//
// Semantics are StableHLO's unless a comment says otherwise. Elementwise ops want operands of one
// type: nothing broadcasts by itself, except numbers next to the operators below.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>

#include "graph/value.h"

namespace ulmus::graph {

// ---- elementwise, floats (Abs, Neg, Sign: integers too) ----
Value Abs(Value x, Loc loc = Loc::current());
Value Ceil(Value x, Loc loc = Loc::current());
Value Cos(Value x, Loc loc = Loc::current());
Value Erf(Value x, Loc loc = Loc::current());
Value ErfInv(Value x, Loc loc = Loc::current());  // x in (-1, 1)
Value Exp(Value x, Loc loc = Loc::current());
Value Expm1(Value x, Loc loc = Loc::current());  // e^x - 1
Value Floor(Value x, Loc loc = Loc::current());
Value IsFinite(Value x, Loc loc = Loc::current());  // -> bool
Value Log(Value x, Loc loc = Loc::current());
Value Log1p(Value x, Loc loc = Loc::current());     // ln(1 + x)
Value Logistic(Value x, Loc loc = Loc::current());  // 1 / (1 + e^-x)
Value Neg(Value x, Loc loc = Loc::current());
Value Not(Value x, Loc loc = Loc::current());  // bool or integer, bitwise
Value RoundNearestEven(Value x, Loc loc = Loc::current());
Value Rsqrt(Value x, Loc loc = Loc::current());  // 1 / sqrt(x)
Value Sign(Value x, Loc loc = Loc::current());
Value Sin(Value x, Loc loc = Loc::current());
Value Sqrt(Value x, Loc loc = Loc::current());
Value Tanh(Value x, Loc loc = Loc::current());

Value Add(Value x, Value y, Loc loc = Loc::current());
Value And(Value x, Value y, Loc loc = Loc::current());  // bool or integer
Value Div(Value x, Value y, Loc loc = Loc::current());  // integers truncate toward zero
Value Max(Value x, Value y, Loc loc = Loc::current());  // gradient of equal elements is halved
Value Min(Value x, Value y, Loc loc = Loc::current());
Value Mul(Value x, Value y, Loc loc = Loc::current());
Value Or(Value x, Value y, Loc loc = Loc::current());
Value Pow(Value x, Value y, Loc loc = Loc::current());  // gradients want x > 0
Value Rem(Value x, Value y, Loc loc = Loc::current());  // sign of x
Value ShiftLeft(Value x, Value y, Loc loc = Loc::current());
Value ShiftRightLogical(Value x, Value y, Loc loc = Loc::current());
Value Sub(Value x, Value y, Loc loc = Loc::current());
Value Xor(Value x, Value y, Loc loc = Loc::current());

enum class Cmp { kEq, kNe, kGe, kGt, kLe, kLt };
Value Compare(Cmp direction, Value x, Value y, Loc loc = Loc::current());  // -> bool
// where[i] ? x[i] : y[i]; `where` bool of the same shape.
Value Select(Value where, Value x, Value y, Loc loc = Loc::current());
Value Clamp(Value x, double low, double high, Loc loc = Loc::current());

// ---- types and constants ----
Value Convert(Value x, DType dtype,
              Loc loc = Loc::current());  // floats round to nearest even; float to int truncates
// Same bits under another dtype of the same width.
Value BitcastConvert(Value x, DType dtype, Loc loc = Loc::current());
Value Constant(Graph& graph, const HostTensor& value, Loc loc = Loc::current());
// All elements `value`, rounded to the dtype.
Value Splat(Graph& graph, double value, TensorType type, Loc loc = Loc::current());
inline Value SplatLike(Value x, double value, Loc loc = Loc::current()) {
  return Splat(x.graph(), value, x.type(), loc);
}
inline Value ZerosLike(Value x, Loc loc = Loc::current()) { return SplatLike(x, 0, loc); }
// result[..., i, ...] = i along `axis`.
Value Iota(Graph& graph, TensorType type, int64_t axis, Loc loc = Loc::current());

// ---- shape ----
Value Reshape(Value x, Shape shape, Loc loc = Loc::current());
// result[i0, i1, ...] takes its axis d from axis permutation[d] of x.
Value Transpose(Value x, Dims permutation, Loc loc = Loc::current());
// x's axis i becomes axis axes[i] of the result; sizes equal or 1.
Value BroadcastInDim(Value x, Shape shape, Dims axes, Loc loc = Loc::current());
// Elements start, start + stride, ... below limit, per axis. Empty strides: all 1.
Value Slice(Value x, Dims starts, Dims limits, Dims strides = {}, Loc loc = Loc::current());
Value Concatenate(Values parts, int64_t axis, Loc loc = Loc::current());
// `low`/`high` elements of `value` before and after each axis (negative: cut), `interior` between
// elements.
Value Pad(Value x, double value, Dims low, Dims high, Dims interior = {}, Loc loc = Loc::current());
Value Reverse(Value x, Dims axes, Loc loc = Loc::current());
// Block of `sizes` at run-time `starts` (one integer scalar per axis); starts are clamped so that
// the block fits.
Value DynamicSlice(Value x, Values starts, Dims sizes, Loc loc = Loc::current());
Value DynamicUpdateSlice(Value x, Value update, Values starts, Loc loc = Loc::current());

// ---- lookup ----
// rows[..., :] = table[ids[...], :]: table [V,D], ids integer of any shape. Ids outside the table
// are clamped; the gradient drops them (StableHLO's rules for gather and scatter).
Value Take(Value table, Value ids, Loc loc = Loc::current());
// table with updates[..., :] added to row ids[...]; repeated ids add up.
Value ScatterAdd(Value table, Value ids, Value updates, Loc loc = Loc::current());
struct TopKResult {
  Value values, indices;  // largest first; indices i32
};
TopKResult TopK(Value x, int64_t k, Loc loc = Loc::current());  // along the last axis

// ---- reductions ----
Value ReduceSum(Value x, Dims axes, Loc loc = Loc::current());
Value ReduceMax(Value x, Dims axes,
                Loc loc = Loc::current());  // gradient shared among equal maxima
Value ReduceMin(Value x, Dims axes, Loc loc = Loc::current());
Value ReduceAnd(Value x, Dims axes, Loc loc = Loc::current());  // bool
Value ReduceOr(Value x, Dims axes, Loc loc = Loc::current());   // bool
Value CumSum(Value x, int64_t axis, Loc loc = Loc::current());  // inclusive

// ---- matrix products ----
struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};
struct DotOptions {
  DType result = DType::kF32;      // accumulation happens in this type
  bool highest_precision = false;  // f32 operands: no TF32 / bf16 passes on GPU and TPU
};
// Result axes: batch, free of x, free of y. Cotangents are rounded to the operands' dtypes.
Value DotGeneral(Value x, Value y, DotDims dims, DotOptions options, Loc loc = Loc::current());
// [..., M, K] x [K, N]: last axis of x with first axis of y; result in x's dtype, accumulated in
// f32.
Value Dot(Value x, Value y, Loc loc = Loc::current());

// ---- random numbers ----
struct RngResult {
  Value state, bits;
};
// Threefry counter-based bits: state u64[2] = (key, counter) in and out; bits of u32 with `shape`.
RngResult RngBits(Value state, Shape shape, Loc loc = Loc::current());

// ---- gradients and scheduling ----
Value StopGradient(Value x, Loc loc = Loc::current());
// Keeps the compiler from moving or merging work across: returns its operands.
Values OptimizationBarrier(Values xs, Loc loc = Loc::current());
// Marks x for the rematerialisation policies that name it.
Value CheckpointName(Value x, std::string name, Loc loc = Loc::current());

// ---- sharding ----
Value ShardingConstraint(Value x, Sharding sharding, Loc loc = Loc::current());
// The same from logical axis names under the graph's rules; "" leaves an axis whole. No-op on one
// device.
Value ShardAs(Value x, std::vector<std::string> logical_axes, Loc loc = Loc::current());

// ---- control flow ----
struct ScanStep {
  Values carry, ys;
};
struct ScanOptions {
  int64_t length = -1;   // needed when there are no xs
  bool reverse = false;  // from the last element to the first; ys keep their places
};
// for l in 0..length: carry, ys[l] = body(carry, xs[l]). xs and ys are stacked along a leading axis
// of size length. Values of the enclosing region used in the body are captured. Returns the last
// carry and the stacked ys.
ScanStep Scan(Values init, Values xs, const std::function<ScanStep(Values carry, Values xs)>& body,
              ScanOptions options = {}, Loc loc = Loc::current());
// while condition(carry): carry = body(carry). Not differentiable.
Values While(Values init, const std::function<Value(Values)>& condition,
             const std::function<Values(Values)>& body, Loc loc = Loc::current());
// pred ? then() : otherwise(), only one of which runs. pred: bool scalar.
Values Cond(Value pred, const std::function<Values()>& then,
            const std::function<Values()>& otherwise, Loc loc = Loc::current());

// A function that is printed once and called by name.
class Function {
 public:
  explicit Function(Region* region);
  Region* region() const { return region_; }
  const std::shared_ptr<const Attrs>& attrs() const { return attrs_; }  // of the nodes that call it

 private:
  Region* region_;
  std::shared_ptr<const Attrs> attrs_;
};
// Values from outside may not be captured: pass them as arguments.
Function DefineFunction(Graph& graph, std::vector<TensorType> parameters,
                        const std::function<Values(Values)>& body, Loc loc = Loc::current());
Values Call(Function function, Values arguments, Loc loc = Loc::current());

// Runs body, and runs it again in the backward pass instead of keeping its intermediate values.
struct RematPolicy {
  // Names given to CheckpointName whose values are kept. Empty: nothing is kept but the inputs
  // ("full"). Names inside a further region (a scan, a call) of the body do not count.
  std::vector<std::string> save;
};
Values Remat(Values inputs, const std::function<Values(Values)>& body, RematPolicy policy = {},
             Loc loc = Loc::current());

struct CustomForward {
  Values outputs, residuals;
};
// outputs of forward(inputs), with backward(inputs, residuals, cotangents) as the gradient: one
// Value per input, null for zero. forward may not capture values that need gradients (CHECK in the
// backward pass). backward uses its arguments alone: inside Remat or a function, values of the
// surrounding code are gone when it runs.
Values CustomGradient(
    Values inputs, const std::function<CustomForward(Values)>& forward,
    std::function<Values(Values inputs, Values residuals, Values cotangents)> backward,
    Loc loc = Loc::current());

// ---- manual regions: the body sees one device's blocks along `axes` and writes its own
// collectives ----
struct ManualSpec {
  std::vector<Sharding> in, out;  // over `axes` only
  std::vector<std::string> axes;  // manual mesh axes; the others stay automatic
};
// Captured values enter whole. An output whose sharding leaves out a manual axis must be equal
// along it.
Values Manual(Values inputs, ManualSpec spec, const std::function<Values(Values)>& body,
              Loc loc = Loc::current());
// Collectives, inside Manual only. `axes`: mesh axes to talk along.
Value AllReduce(Value x, std::vector<std::string> axes, Loc loc = Loc::current());  // sum
Value AllGather(Value x, std::vector<std::string> axes, int64_t dim, Loc loc = Loc::current());
Value ReduceScatter(Value x, std::vector<std::string> axes, int64_t dim,
                    Loc loc = Loc::current());  // sum
// Device i of the axis receives from i - shift (modulo its size).
Value CollectivePermute(Value x, std::string axis, int64_t shift, Loc loc = Loc::current());
Value AllToAll(Value x, std::string axis, int64_t split_dim, int64_t concat_dim,
               Loc loc = Loc::current());
Value AxisIndex(Graph& graph, std::string axis, Loc loc = Loc::current());  // u32 scalar
// Mesh axes along which the code being built is written per device; empty outside Manual.
std::vector<std::string> ManualAxes(const Graph& graph);
// True if the code being built is for one device: nothing is left to partition.
bool OnOneDevice(const Graph& graph);

// ---- kernels ----
using KernelAttr = std::variant<int64_t, float, std::string>;
using KernelAttrs = std::map<std::string, KernelAttr>;
// An op with one lowering per platform. The portable one (plain ops) is always there and defines
// the meaning.
struct KernelDef {
  std::string name;
  std::function<Values(const KernelAttrs&, Values)> portable;
  // Gradient rule shared by all lowerings; absent: the portable form is differentiated.
  std::function<Values(const KernelAttrs&, const VjpContext&)> vjp;
  // Platform -> custom-call target of the kernel ("cpu" -> an FFI handler of src/kernels).
  std::map<std::string, std::string> targets;
};
// `def` must outlive the graph.
Values KernelCall(const KernelDef& def, KernelAttrs attrs, Values inputs, Loc loc = Loc::current());

// ---- operators ----
// A left operand that remembers the line it was written on.
struct Operand {
  Value value;
  Loc loc;
  Operand(Value v, Loc l = Loc::current()) : value(v), loc(l) {}
};
inline Value operator+(Operand x, Value y) { return Add(x.value, y, x.loc); }
inline Value operator-(Operand x, Value y) { return Sub(x.value, y, x.loc); }
inline Value operator*(Operand x, Value y) { return Mul(x.value, y, x.loc); }
inline Value operator/(Operand x, Value y) { return Div(x.value, y, x.loc); }
inline Value operator+(Operand x, double y) {
  return Add(x.value, SplatLike(x.value, y, x.loc), x.loc);
}
inline Value operator-(Operand x, double y) {
  return Sub(x.value, SplatLike(x.value, y, x.loc), x.loc);
}
inline Value operator*(Operand x, double y) {
  return Mul(x.value, SplatLike(x.value, y, x.loc), x.loc);
}
inline Value operator/(Operand x, double y) {
  return Div(x.value, SplatLike(x.value, y, x.loc), x.loc);
}
inline Value operator+(double x, Operand y) {
  return Add(SplatLike(y.value, x, y.loc), y.value, y.loc);
}
inline Value operator-(double x, Operand y) {
  return Sub(SplatLike(y.value, x, y.loc), y.value, y.loc);
}
inline Value operator*(double x, Operand y) {
  return Mul(SplatLike(y.value, x, y.loc), y.value, y.loc);
}
inline Value operator/(double x, Operand y) {
  return Div(SplatLike(y.value, x, y.loc), y.value, y.loc);
}
inline Value operator-(Operand x) { return Neg(x.value, x.loc); }

}  // namespace ulmus::graph
