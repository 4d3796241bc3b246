#include "graph/testing/random_programs.h"

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

constexpr int64_t kSize = 3;
constexpr int kMaxDepth = 3, kMaxInnerGrads = 2;
constexpr double kInt = 5;  // integers stay in 0..4

// splitmix64: the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t Below(size_t n) { return Next() % n; }
  bool Chance(size_t percent) { return Below(100) < percent; }
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

// Values in sight, by type; those of enclosing regions stay in sight and are captured when used.
struct Sight {
  Values scalars, vectors, matrices, ints;
};

const KernelDef& Kernel(bool own_gradient) {
  static const auto kPortable = [](const KernelAttrs& attrs, Values v) {
    return Values{Tanh(v[0] * v[1]) * static_cast<double>(std::get<float>(attrs.at("scale"))),
                  Sin(v[0])};
  };
  static const KernelDef kPlain = {
      .name = "plain", .portable = kPortable, .vjp = nullptr, .targets = {}};
  static const KernelDef kOwn = {
      .name = "own",
      .portable = kPortable,
      .vjp =
          [](const KernelAttrs& attrs, const VjpContext& c) {
            const Value x = c.operand(0), y = c.operand(1), t = Tanh(x * y);
            const Value inner = c.cotangent(0) * (1.0 - t * t) *
                                static_cast<double>(std::get<float>(attrs.at("scale")));
            return Values{inner * y + c.cotangent(1) * Cos(x), inner * x};
          },
      .targets = {},
  };
  return own_gradient ? kOwn : kPlain;
}

class Generator {
 public:
  Generator(Graph& graph, uint64_t seed, DType dtype) : g_(graph), random_(seed), dtype_(dtype) {}

  RandomProgram Make(const std::string& prefix) {
    RandomProgram program;
    Sight sight;
    const auto add = [&](TensorType type, Values& kind) {
      RefTensor t = RefTensor::Zeros(type);
      for (double& x : t.data)
        x = RoundTo(type.dtype,
                    IsFloat(type.dtype) ? random_.Between(-1, 1) : random_.Between(0, kInt));
      const Value v = g_.Parameter(fmt::format("{}in{}", prefix, program.arguments.size()), type);
      program.arguments.push_back(std::move(t));
      if (IsFloat(type.dtype)) program.wrt.push_back(v);
      kind.push_back(v);
    };
    add(Vector(), sight.vectors), add(Matrix(), sight.matrices), add(Scalar(), sight.scalars),
        add(Matrix(), sight.matrices);
    add({DType::kI32, {}}, sight.ints);
    Steps(sight, 0, 6 + random_.Below(14));
    // Every kind of value takes part in the loss, the latest ones most.
    program.loss =
        Scalarize(sight.vectors.back()) + Scalarize(sight.matrices.back()) + sight.scalars.back();
    for (int i = 0; i < 3; ++i) program.loss = program.loss + Scalarize(AnyFloat(sight));
    return program;
  }

 private:
  TensorType Scalar() const { return {dtype_, {}}; }
  TensorType Vector() const { return {dtype_, {kSize}}; }
  TensorType Matrix() const { return {dtype_, {kSize, kSize}}; }

  // Late values twice as often as early ones.
  Value Pick(const Values& kind) {
    return random_.Chance(50) ? kind[kind.size() - 1 - random_.Below((kind.size() + 1) / 2)]
                              : kind[random_.Below(kind.size())];
  }
  Values& Kind(Sight& sight, const TensorType& type) {
    if (!IsFloat(type.dtype)) return sight.ints;
    return type.shape.rank() == 0   ? sight.scalars
           : type.shape.rank() == 1 ? sight.vectors
                                    : sight.matrices;
  }
  Value PickLike(Sight& sight, const TensorType& type) {
    if (random_.Chance(6)) return Splat(g_, IsFloat(type.dtype) ? random_.Between(-1, 1) : 2, type);
    return Pick(Kind(sight, type));
  }
  void See(Sight& sight, Value v) { Kind(sight, v.type()).push_back(v); }
  void SeeAll(Sight& sight, const Values& vs) {
    for (Value v : vs) See(sight, v);
  }
  Value AnyFloat(Sight& sight) {
    const size_t kind = random_.Below(3);
    return Pick(kind == 0 ? sight.scalars : kind == 1 ? sight.vectors : sight.matrices);
  }
  Value Any(Sight& sight) { return random_.Chance(20) ? Pick(sight.ints) : AnyFloat(sight); }

  Value Scalarize(Value v) {
    Dims axes;
    for (int64_t d = 0; d < v.rank(); ++d)
      axes.push_back(d - v.rank());  // negative axes on purpose
    HostTensor weights(v.type());
    for (int64_t i = 0; i < weights.num_elements(); ++i) weights.Set(i, random_.Between(0.3, 1));
    return ReduceSum(v * Constant(g_, weights), axes) * 0.5;
  }
  Value Bounded(Value v) { return random_.Chance(50) ? Tanh(v) : Sin(v); }
  Value Flag(Sight& sight) {
    if (random_.Chance(30))
      return Compare(Cmp::kGt, Pick(sight.scalars), Splat(g_, 0.05, Scalar()));
    const Value i = Pick(sight.ints);
    return Compare(Cmp::kLt, i, SplatLike(i, random_.Between(1, 4)));
  }

  void Steps(Sight& sight, int depth, size_t count) {
    for (size_t i = 0; i < count; ++i) Step(sight, depth);
  }

  void Step(Sight& sight, int depth) {
    const size_t kind = random_.Below(depth < kMaxDepth ? 20 : 8);
    switch (kind) {
      case 0:
      case 1:
      case 2:
        return See(sight, Elementwise(sight, AnyFloat(sight)));
      case 3:
        return See(sight, Product(sight));
      case 4:
        return See(sight, Shaped(sight));
      case 5:
        return See(sight, Reduction(sight));
      case 6:
        return See(sight, Rem(Add(Pick(sight.ints), Pick(sight.ints)),
                              Splat(g_, kInt, {DType::kI32, {}})));
      case 7:
        return See(sight, Convert(Pick(sight.ints), dtype_) * 0.3 - 0.4);
      case 8:
      case 9:
      case 10:
      case 11:
        return RandomScan(sight, depth);
      case 12:
      case 13:
        return RandomCond(sight, depth);
      case 14:
      case 15:
        return RandomRemat(sight, depth);
      case 16:
        return RandomCustomGradient(sight, depth);
      case 17:
      case 18:
        return RandomCall(sight, depth);
      default:
        break;
    }
    if (random_.Chance(60) || num_inner_grads_ >= kMaxInnerGrads) {
      const Value x = AnyFloat(sight);
      return SeeAll(sight, KernelCall(Kernel(random_.Chance(50)), {{"scale", 0.5f}},
                                      {x, PickLike(sight, x.type())}));
    }
    ++num_inner_grads_;
    const Value x = AnyFloat(sight), y = Elementwise(sight, x);
    const Value loss = Scalarize(y * Sin(PickLike(sight, y.type())));
    for (Value grad : Grad(loss, {x, Pick(sight.vectors)})) See(sight, Tanh(grad));
  }

  Value Elementwise(Sight& sight, Value x) {
    const Value y = PickLike(sight, x.type());
    switch (random_.Below(11)) {
      case 0:
        return Sin(x);
      case 1:
        return Tanh(x);
      case 2:
        return Tanh(x * y);
      case 3:
        return x * Sin(y);
      case 4:
        return (x + y) * 0.7;
      case 5:
        return x - Cos(y);
      case 6:
        return Logistic(x);
      case 7:
        return Exp(Tanh(x)) * 0.4;
      case 8:
        return x / (Sin(y) + 2.0);
      case 9:
        return Select(Compare(Cmp::kGt, x, y), x * 0.5, Sin(y));
      default:
        return Sqrt(x * x + 1.0) - 1.0;
    }
  }
  Value Product(Sight& sight) {
    const Value m = Pick(sight.matrices);
    return random_.Chance(50) ? Bounded(Dot(Pick(sight.vectors), m))
                              : Bounded(Dot(PickLike(sight, Matrix()), m));
  }
  Value Shaped(Sight& sight) {
    const Value m = Pick(sight.matrices), v = Pick(sight.vectors);
    switch (random_.Below(6)) {
      case 0:
        return Transpose(m, {1, 0});
      case 1:
        return BroadcastTo(v, {kSize, kSize}) * m;
      case 2:
        return BroadcastTo(Pick(sight.scalars), {kSize});
      case 3:
        return Reshape(Slice(m, {1, 0}, {2, kSize}), {kSize});
      case 4:
        return Concatenate({Slice(v, {1}, {kSize}), Slice(v, {0}, {1})}, -1);
      default:
        return CumSum(m, -1) * 0.5;
    }
  }
  Value Reduction(Sight& sight) {
    switch (random_.Below(4)) {
      case 0:
        return Bounded(ReduceSum(Pick(sight.matrices), {-1}));
      case 1:
        return Mean(Pick(sight.vectors), {0});
      case 2:
        return ReduceMax(Pick(sight.matrices), {0});
      default:
        return Bounded(ReduceSum(Pick(sight.matrices), {0, 1}));
    }
  }

  // `count` values stacked along a new leading axis.
  Value StackOf(Sight& sight, int64_t count) {
    if (count == kSize && random_.Chance(70))
      return random_.Chance(70) ? Pick(sight.matrices) : Pick(sight.vectors);
    if (random_.Chance(20)) return Iota(g_, {DType::kI32, {count}}, 0);
    const TensorType type = AnyFloat(sight).type();
    Dims row = type.shape.dims();
    row.insert(row.begin(), 1);
    Values parts;
    for (int64_t i = 0; i < count; ++i) parts.push_back(Reshape(PickLike(sight, type), Shape(row)));
    return Concatenate(parts, 0);
  }

  void RandomScan(Sight& sight, int depth) {
    const auto length = static_cast<int64_t>(1 + random_.Below(3));
    Values init, xs;
    for (size_t n = random_.Below(4); n-- > 0;) init.push_back(Any(sight));
    for (size_t n = random_.Below(3) + (init.empty() ? 1 : 0); n-- > 0;)
      xs.push_back(StackOf(sight, length));
    const bool stackable =
        !xs.empty() && IsFloat(xs[0].dtype()) && length == kSize && xs[0].rank() <= 2;
    if (stackable && random_.Chance(25)) init.push_back(xs[0]);  // carry and xs alike
    const size_t num_ys = random_.Below(3);
    const ScanStep out =
        Scan(init, xs,
             [&](Values carry, Values slices) {
               Sight inner = sight;
               SeeAll(inner, carry), SeeAll(inner, slices);
               Steps(inner, depth + 1, 1 + random_.Below(5));
               ScanStep step;
               for (Value c : carry)
                 step.carry.push_back(random_.Chance(20) ? c : PickLike(inner, c.type()));
               for (size_t y = 0; y < num_ys; ++y) step.ys.push_back(Any(inner));
               return step;
             },
             {.length = length, .reverse = random_.Chance(40)});
    for (Value c : out.carry) {
      if (random_.Chance(85)) See(sight, c);
    }
    for (Value y : out.ys) {
      if (random_.Chance(20)) continue;
      const Value summed = IsFloat(y.dtype())
                               ? Tanh(ReduceSum(y, {0}))
                               : Rem(ReduceSum(y, {0}), Splat(g_, kInt, {DType::kI32, {}}));
      See(sight, summed);
      if (IsFloat(y.dtype()) && length == kSize && y.rank() <= 2) See(sight, y);
    }
  }

  void RandomCond(Sight& sight, int depth) {
    const Values like = {Any(sight), AnyFloat(sight)};
    const auto branch = [&] {
      Sight inner = sight;
      Steps(inner, depth + 1, random_.Below(4));  // none: captured values are returned as they are
      Values results;
      for (Value v : like) results.push_back(PickLike(inner, v.type()));
      return results;
    };
    SeeAll(sight, Cond(Flag(sight), branch, branch));
  }

  void RandomRemat(Sight& sight, int depth) {
    static const char* const kNames[] = {"a", "b", "c"};
    const Values inputs = {AnyFloat(sight), Any(sight), AnyFloat(sight)};
    RematPolicy policy;
    for (const char* name : kNames) {
      if (random_.Chance(40)) policy.save.push_back(name);
    }
    SeeAll(sight, Remat(
                      inputs,
                      [&](Values in) {
                        Sight inner = sight;
                        SeeAll(inner, in);
                        for (const char* name : kNames) {
                          Steps(inner, depth + 1, random_.Below(3));
                          if (random_.Chance(60)) See(inner, CheckpointName(AnyFloat(inner), name));
                        }
                        Values results = {AnyFloat(inner), Any(inner)};
                        if (random_.Chance(20)) results.push_back(in[0]);
                        return results;
                      },
                      policy));
  }

  // sin(x) y + cos(x), by hand.
  void RandomCustomGradient(Sight& sight, int) {
    const Value x = AnyFloat(sight), y = PickLike(sight, x.type());
    const bool saves = random_.Chance(60);
    SeeAll(sight, CustomGradient(
                      {x, y},
                      [&](Values in) {
                        const Value s = Sin(in[0]), c = Cos(in[0]);
                        return CustomForward{{s * in[1] + c}, saves ? Values{s, c} : Values{}};
                      },
                      [saves](Values in, Values saved, Values ct) {
                        const Value s = saves ? saved[0] : Sin(in[0]),
                                    c = saves ? saved[1] : Cos(in[0]);
                        return Values{ct[0] * (c * in[1] - s), ct[0] * s};
                      }));
  }

  void RandomCall(Sight& sight, int depth) {
    if (functions_.empty() || random_.Chance(40)) {
      const std::vector<TensorType> types = {Vector(), Matrix(), Scalar(), {DType::kI32, {}}};
      functions_.push_back(DefineFunction(g_, types, [&](Values in) {
        Sight inner{{in[2]}, {in[0]}, {in[1]}, {in[3]}};
        if (random_.Chance(15)) return Values{in[0], in[1], in[2]};
        Steps(inner, depth + 1, 1 + random_.Below(5));
        return Values{inner.vectors.back(), Pick(inner.matrices), Bounded(inner.scalars.back())};
      }));
    }
    const Function f = functions_[random_.Below(functions_.size())];
    for (size_t times = 1 + random_.Below(2); times-- > 0;) {
      SeeAll(sight, Call(f, {Pick(sight.vectors), Pick(sight.matrices), Pick(sight.scalars),
                             Pick(sight.ints)}));
    }
  }

  Graph& g_;
  Random random_;
  DType dtype_;
  int num_inner_grads_ = 0;
  std::vector<Function> functions_;
};

}  // namespace

RandomProgram AddRandomProgram(Graph& graph, uint64_t seed, DType dtype,
                               const std::string& prefix) {
  return Generator(graph, seed, dtype).Make(prefix);
}

}  // namespace ulmus::graph
