#include "graph/testing/op_cases.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

CaseInput F(Shape shape, double low = -2, double high = 2) {
  return {{DType::kF32, std::move(shape)}, low, high};
}
CaseInput I(Shape shape, double low, double high) {
  return {{DType::kI32, std::move(shape)}, low, high};
}
CaseInput U(Shape shape, double low, double high) {
  return {{DType::kU32, std::move(shape)}, low, high};
}
CaseInput B(Shape shape) { return {{DType::kBool, std::move(shape)}, 0, 1}; }

using UnaryFn = Value (*)(Value, Loc);
using BinaryFn = Value (*)(Value, Value, Loc);

OpCase Unary(const char* name, UnaryFn f, double low = -2, double high = 2) {
  return {name, {F({3, 4}, low, high)}, [f](Values v) { return Values{f(v[0], Loc::current())}; }};
}

OpCase Binary(const char* name, BinaryFn f, double low = -2, double high = 2) {
  return {name, {F({3, 4}, low, high), F({3, 4}, low, high)}, [f](Values v) {
            return Values{f(v[0], v[1], Loc::current())};
          }};
}

OpCase Whole(std::string name, std::vector<CaseInput> inputs, std::function<Values(Values)> build) {
  OpCase c{std::move(name), std::move(inputs), std::move(build)};
  c.differentiable = false;
  c.bf16 = false;
  return c;
}

OpCase Meshed(OpCase c) {
  c.mesh = Mesh({{"data", 2}, {"tensor", 4}});
  return c;
}

const Sharding kRows{{{"data"}, {}}}, kBlocks{{{"data"}, {"tensor"}}}, kWhole{{{}, {}}},
    kColumns{{{}, {"tensor"}}};

// y = x + tanh(x w1) w2: a residual block with captured and stacked weights to use in regions.
Value Block(Value x, Value w1, Value w2) { return x + Dot(Tanh(Dot(x, w1)), w2); }

const KernelDef& ScaledSquare() {
  static const KernelDef kDef = {
      .name = "scaled_square",
      .portable =
          [](const KernelAttrs& attrs, Values v) {
            return Values{v[0] * v[0] * static_cast<double>(std::get<float>(attrs.at("scale")))};
          },
      .vjp = nullptr,
      .targets = {},
  };
  return kDef;
}

void AddElementwise(std::vector<OpCase>& cases) {
  cases.insert(cases.end(), {
                                Unary("abs", Abs),
                                Unary("ceil", Ceil),
                                Unary("cos", Cos),
                                Unary("erf", Erf),
                                Unary("erf_inv", ErfInv, -0.9, 0.9),
                                Unary("exp", Exp),
                                Unary("expm1", Expm1),
                                Unary("floor", Floor),
                                Unary("log", Log, 0.2, 3),
                                Unary("log1p", Log1p, -0.5, 3),
                                Unary("logistic", Logistic),
                                Unary("neg", Neg),
                                Unary("round", RoundNearestEven),
                                Unary("rsqrt", Rsqrt, 0.2, 3),
                                Unary("sign", Sign),
                                Unary("sin", Sin),
                                Unary("sqrt", Sqrt, 0.2, 3),
                                Unary("tanh", Tanh),
                                Binary("add", Add),
                                Binary("div", Div, 0.3, 2),
                                Binary("max", Max),
                                Binary("min", Min),
                                Binary("mul", Mul),
                                Binary("pow", Pow, 0.3, 2),
                                Binary("rem", Rem, 0.3, 2),
                                Binary("sub", Sub),
                            });
  cases.push_back({"max_of_equal", {F({4})}, [](Values v) {
                     return Values{Max(v[0], v[0]), Min(v[0], v[0])};
                   }});
  cases.push_back(Whole("logic", {B({8}), B({8})}, [](Values v) {
    return Values{And(v[0], v[1]), Or(v[0], v[1]), Xor(v[0], v[1]), Not(v[0])};
  }));
  cases.push_back(Whole("bits", {U({6}, 0, 4000000), U({6}, 0, 31)}, [](Values v) {
    return Values{And(v[0], v[1]), Or(v[0], v[1]),        Xor(v[0], v[1]),
                  Not(v[0]),       ShiftLeft(v[0], v[1]), ShiftRightLogical(v[0], v[1])};
  }));
  cases.push_back(Whole("integers", {I({7}, -9, 9), I({7}, 1, 5)}, [](Values v) {
    return Values{Add(v[0], v[1]), Mul(v[0], v[1]), Div(v[0], v[1]), Rem(v[0], v[1]),
                  Max(v[0], v[1]), Abs(v[0]),       Neg(v[0]),       Sign(v[0])};
  }));
  cases.push_back(Whole("is_finite", {F({4}, 0, 1)}, [](Values v) {
    return Values{IsFinite(v[0]), IsFinite(Div(v[0], ZerosLike(v[0])))};
  }));
  for (const auto& [name, cmp] : {std::pair{"eq", Cmp::kEq},
                                  {"ne", Cmp::kNe},
                                  {"ge", Cmp::kGe},
                                  {"gt", Cmp::kGt},
                                  {"le", Cmp::kLe},
                                  {"lt", Cmp::kLt}}) {
    cases.push_back(Whole(std::string("compare_") + name, {I({9}, -2, 2), I({9}, -2, 2)},
                          [cmp](Values v) { return Values{Compare(cmp, v[0], v[1])}; }));
  }
  cases.push_back({"select", {F({3, 4}), F({3, 4})}, [](Values v) {
                     return Values{Select(Compare(Cmp::kGt, v[0], v[1]), v[0] * v[1], v[1])};
                   }});
  cases.push_back({"clamp", {F({3, 4})}, [](Values v) { return Values{Clamp(v[0], -0.7, 1.1)}; }});
}

void AddShapes(std::vector<OpCase>& cases) {
  cases.push_back({"convert", {F({5})}, [](Values v) {
                     return Values{Convert(Convert(v[0], DType::kF64) * 3.0, v[0].dtype())};
                   }});
  cases.push_back(Whole("convert_int", {F({8}, -5, 5)}, [](Values v) {
    return Values{Convert(v[0], DType::kI32), Convert(v[0], DType::kBool),
                  Convert(Convert(v[0], DType::kI64), DType::kF32)};
  }));
  cases.push_back(Whole("bitcast", {U({4}, 1000000000, 1100000000)}, [](Values v) {
    const Value as_float = BitcastConvert(v[0], DType::kF32);
    return Values{as_float, BitcastConvert(Neg(as_float), DType::kI32)};
  }));
  cases.push_back({"constant", {F({2, 3})}, [](Values v) {
                     HostTensor c(TensorType{DType::kF32, {2, 3}});
                     for (int64_t i = 0; i < 6; ++i) c.Set(i, 0.1 * static_cast<double>(i) - 0.3);
                     return Values{Convert(Constant(v[0].graph(), c), v[0].dtype()) * v[0],
                                   SplatLike(v[0], -1.5) * v[0]};
                   }});
  cases.push_back(Whole("constants", {I({1}, 0, 0)}, [](Values v) {
    Graph& g = v[0].graph();
    HostTensor flags(TensorType{DType::kBool, {2, 2}});
    flags.Set(1, 1), flags.Set(2, 1);
    return Values{Constant(g, flags),
                  Splat(g, -INFINITY, {DType::kF32, {2}}),
                  Splat(g, INFINITY, {DType::kBF16, {}}),
                  Splat(g, 7, {DType::kU64, {3}}),
                  Iota(g, {DType::kI32, {2, 3}}, 1),
                  Iota(g, {DType::kF32, {2, 3}}, 0)};
  }));
  cases.push_back({"reshape", {F({2, 6})}, [](Values v) { return Values{Reshape(v[0], {3, 4})}; }});
  cases.push_back(
      {"transpose", {F({2, 3, 4})}, [](Values v) { return Values{Transpose(v[0], {2, 0, 1})}; }});
  cases.push_back({"broadcast", {F({3}), F({1, 4})}, [](Values v) {
                     return Values{BroadcastInDim(v[0], {2, 3, 4}, {1}),
                                   BroadcastInDim(v[1], {3, 4}, {0, 1}),
                                   BroadcastTo(v[1], {2, 3, 4})};
                   }});
  cases.push_back({"slice", {F({5, 6})}, [](Values v) {
                     return Values{Slice(v[0], {1, 0}, {4, 6}, {2, 3}),
                                   Slice(v[0], {0, 2}, {5, 3})};
                   }});
  cases.push_back({"concatenate", {F({2, 3}), F({2, 1}), F({2, 2})}, [](Values v) {
                     return Values{Concatenate({v[0], v[1], v[2]}, 1)};
                   }});
  cases.push_back({"pad", {F({3, 4})}, [](Values v) {
                     return Values{Pad(v[0], 0.5, {1, 0}, {0, 2}),
                                   Pad(v[0], 0, {0, -1}, {2, 1}, {1, 0}),
                                   Pad(v[0], 0, {-1, 0}, {-1, 0}, {2, 1})};
                   }});
  cases.push_back(
      {"reverse", {F({3, 4})}, [](Values v) { return Values{Reverse(v[0], {0, -1})}; }});
  cases.push_back({"dynamic_slice", {F({4, 5}), I({}, 0, 3), I({}, 2, 2)}, [](Values v) {
                     return Values{DynamicSlice(v[0], {v[1], v[2]}, {2, 3})};
                   }});
  cases.push_back({"dynamic_update_slice", {F({4, 5}), F({2, 3}), I({}, 0, 9)}, [](Values v) {
                     return Values{DynamicUpdateSlice(v[0], v[1], {v[2], v[2]}) * 2.0};
                   }});
}

void AddReductionsAndLookup(std::vector<OpCase>& cases) {
  cases.push_back(
      {"take", {F({5, 3}), I({2, 4}, 0, 4)}, [](Values v) { return Values{Take(v[0], v[1])}; }});
  cases.push_back({"scatter_add", {F({5, 3}), I({6}, -1, 5), F({6, 3})}, [](Values v) {
                     return Values{ScatterAdd(v[0], v[1], v[2])};
                   }});
  cases.push_back({"top_k", {F({3, 7})}, [](Values v) {
                     const TopKResult top = TopK(v[0], 3);
                     return Values{top.values, top.indices};
                   }});
  cases.push_back({"reduce", {F({2, 3, 4})}, [](Values v) {
                     return Values{ReduceSum(v[0], {0, 2}), ReduceMax(v[0], {1}),
                                   ReduceMin(v[0], {-1, 0}), ReduceSum(v[0], {0, 1, 2})};
                   }});
  cases.push_back({"reduce_max_of_equal", {F({3})}, [](Values v) {
                     return Values{ReduceMax(Concatenate({v[0], v[0]}, 0), {0})};
                   }});
  cases.push_back(Whole("reduce_bool", {B({3, 4})}, [](Values v) {
    return Values{ReduceAnd(v[0], {1}), ReduceOr(v[0], {0})};
  }));
  cases.push_back(Whole("reduce_int", {I({3, 4}, -9, 9)}, [](Values v) {
    return Values{ReduceSum(v[0], {1}), ReduceMax(v[0], {0}), ReduceMin(v[0], {0, 1})};
  }));
  cases.push_back(
      {"cum_sum", {F({3, 5})}, [](Values v) { return Values{CumSum(v[0], 1), CumSum(v[0], 0)}; }});
  cases.push_back(
      {"dot", {F({2, 3, 4}), F({4, 5})}, [](Values v) { return Values{Dot(v[0], v[1])}; }});
  cases.push_back({"dot_general", {F({2, 4, 3, 5}), F({5, 2, 6, 4})}, [](Values v) {
                     return Values{DotGeneral(v[0], v[1], {{0}, {1}, {3, 1}, {0, 3}},
                                              {.result = v[0].dtype(), .highest_precision = true})};
                   }});
  cases.push_back({"functions", {F({3, 6}), I({3}, 0, 5)}, [](Values v) {
                     return Values{
                         Softmax(v[0]), LogSumExp(v[0]),         TakeAlongLast(v[0], v[1]),
                         Silu(v[0]),    Mean(Square(v[0]), {0}), ArgMax(v[0])};
                   }});
  cases.push_back(Whole("rng_bits", {{{DType::kU64, {2}}, 3, 70000}}, [](Values v) {
    const RngResult a = RngBits(v[0], {3, 4}), b = RngBits(a.state, {5, 3});
    return Values{a.bits, b.bits};
  }));
}

void AddGradientControl(std::vector<OpCase>& cases) {
  cases.push_back(
      {"stop_gradient", {F({4})}, [](Values v) { return Values{v[0] * StopGradient(v[0])}; }});
  cases.back().differentiable =
      false;  // the point is that it differs from finite differences; autodiff_test checks it
  cases.push_back({"optimization_barrier", {F({4}), F({3})}, [](Values v) {
                     const Values kept = OptimizationBarrier({v[0] * v[0], v[1]});
                     return Values{kept[0], Exp(kept[1])};
                   }});
  cases.push_back({"remat", {F({3, 4}), F({4, 5}), F({5, 4})}, [](Values v) {
                     return Remat({v[0], v[1]}, [&](Values in) {
                       return Values{Block(in[0], in[1], v[2]), Exp(in[0])};
                     });
                   }});
  cases.push_back(
      {"remat_saving", {F({3, 4}), F({4, 5}), F({5, 4})}, [](Values v) {
         return Remat(
             v,
             [](Values in) {
               return Values{in[0] + Dot(CheckpointName(Tanh(Dot(in[0], in[1])), "hidden"), in[2])};
             },
             {.save = {"hidden"}});
       }});
  cases.push_back({"custom_gradient", {F({3, 4})}, [](Values v) {
                     // sin, with a gradient written by hand from a saved cosine
                     return CustomGradient(
                         v, [](Values in) { return CustomForward{{Sin(in[0])}, {Cos(in[0])}}; },
                         [](Values, Values saved, Values ct) { return Values{ct[0] * saved[0]}; });
                   }});
  cases.push_back({"call", {F({3, 4}), F({4, 5}), F({5, 4})}, [](Values v) {
                     const Function f = DefineFunction(
                         v[0].graph(), {v[0].type(), v[1].type(), v[2].type()},
                         [](Values in) { return Values{Block(in[0], in[1], in[2])}; });
                     const Value once = Call(f, v)[0];
                     return Values{Call(f, {once, v[1], v[2]})[0], once};
                   }});
  cases.push_back({"cond", {F({3}), F({3}), I({}, 0, 1)}, [](Values v) {
                     const Value pred = Compare(Cmp::kGt, v[2], ZerosLike(v[2]));
                     const Values a = Cond(
                         pred, [&] { return Values{Sin(v[0]) * v[1]}; },
                         [&] { return Values{Exp(v[1])}; });
                     const Values b = Cond(
                         Not(pred), [&] { return Values{Sin(v[0]) * v[1]}; },
                         [&] { return Values{Exp(v[1])}; });
                     return Values{a[0], b[0]};
                   }});
  cases.push_back(Whole("while", {F({3}, 0.5, 1), I({}, 3, 6)}, [](Values v) {
    const Value one = SplatLike(v[1], 1);
    return While(
        {v[0], ZerosLike(v[1])}, [&](Values c) { return Compare(Cmp::kLt, c[1], v[1]); },
        [&](Values c) { return Values{c[0] * v[0], c[1] + one}; });
  }));
  cases.push_back({"kernel_call", {F({3, 4})}, [](Values v) {
                     return KernelCall(ScaledSquare(), {{"scale", 0.5f}}, v);
                   }});
}

void AddScans(std::vector<OpCase>& cases) {
  cases.push_back(
      {"scan_layers", {F({3, 4}), F({5, 4, 4}, -0.7, 0.7), F({5, 4, 4}, -0.7, 0.7)}, [](Values v) {
         const ScanStep out = Scan({v[0]}, {v[1], v[2]}, [](Values c, Values w) {
           const Value y = Block(c[0], w[0], w[1]);
           return ScanStep{{y}, {ReduceSum(y, {1})}};
         });
         return Values{out.carry[0], out.ys[0]};
       }});
  cases.push_back(
      {"scan_remat", {F({3, 4}), F({5, 4, 4}, -0.7, 0.7), F({5, 4, 4}, -0.7, 0.7)}, [](Values v) {
         return Scan({v[0]}, {v[1], v[2]},
                     [](Values c, Values w) {
                       return ScanStep{
                           Remat({c[0], w[0], w[1]},
                                 [](Values in) { return Values{Block(in[0], in[1], in[2])}; }),
                           {}};
                     })
             .carry;
       }});
  cases.push_back({"scan_captured", {F({3, 4}), F({4, 4}, -0.7, 0.7), I({4}, 0, 3)}, [](Values v) {
                     // A captured weight, an integer carry, integer xs, no float xs, in reverse.
                     const ScanStep out =
                         Scan({v[0], Splat(v[0].graph(), 0, {DType::kI32, {}})}, {v[2]},
                              [&](Values c, Values x) {
                                const Value scale =
                                    BroadcastTo(Convert(x[0] + c[1], c[0].dtype()), c[0].shape());
                                const Value y = Tanh(Dot(c[0], v[1])) * scale + c[0];
                                return ScanStep{{y, c[1] + x[0]}, {y * v[0]}};
                              },
                              {.reverse = true});
                     return Values{out.carry[0], out.ys[0]};
                   }});
  cases.push_back(
      {"scan_nested", {F({4}), F({2, 3, 4})}, [](Values v) {
         // The inner scan's saved values are saved by the outer one; one carry never depends on the
         // inputs.
         const ScanStep out = Scan({v[0], SplatLike(v[0], 1)}, {v[1]}, [](Values c, Values x) {
           const ScanStep inner = Scan({c[0]}, {x[0]}, [&](Values d, Values y) {
             return ScanStep{{Sin(d[0]) * y[0] + c[1]}, {Exp(y[0])}};
           });
           return ScanStep{{inner.carry[0], c[1] * 0.5}, {ReduceSum(inner.ys[0], {0})}};
         });
         return Values{out.carry[0], out.ys[0]};
       }});
  cases.push_back({"scan_accumulate", {F({4, 3}), F({3, 3}, -0.7, 0.7)}, [](Values v) {
                     // Gradients inside a scan, summed over microbatches: what a training step
                     // does.
                     const ScanStep out = Scan({ZerosLike(v[1])}, {v[0]}, [&](Values c, Values x) {
                       const Value loss = ReduceSum(Tanh(Dot(Reshape(x[0], {1, 3}), v[1])), {0, 1});
                       return ScanStep{{c[0] + Grad(loss, {v[1]})[0]}, {}};
                     });
                     return out.carry;
                   }});
  cases.push_back({"scan_remat_saving", {F({3, 4}), F({5, 4, 4}, -0.7, 0.7)}, [](Values v) {
                     return Scan({v[0]}, {v[1]},
                                 [](Values c, Values w) {
                                   return ScanStep{Remat({c[0], w[0]},
                                                         [](Values in) {
                                                           const Value h = CheckpointName(
                                                               Dot(in[0], in[1]), "projection");
                                                           return Values{in[0] + Sin(Tanh(h) * h)};
                                                         },
                                                         {.save = {"projection"}}),
                                                   {}};
                                 })
                         .carry;
                   }});
}

void AddSharded(std::vector<OpCase>& cases) {
  cases.push_back(Meshed({"sharding_constraint", {F({4, 8})}, [](Values v) {
                            return Values{ShardingConstraint(Exp(v[0]), kBlocks)};
                          }}));
  cases.push_back(
      Meshed({"manual_collectives", {F({8, 8})}, [](Values v) {
                return Manual(v,
                              {{kBlocks},
                               {kRows, kBlocks, kRows, kBlocks, Sharding{{{"data", "tensor"}, {}}}},
                               {"data", "tensor"}},
                              [](Values in) {
                                const Value x = Sin(in[0]);                          // [4,2]
                                const Value gathered = AllGather(x, {"tensor"}, 1);  // [4,8]
                                const Value summed = AllReduce(x * x, {"tensor"});   // [4,2]
                                const Value scattered =
                                    ReduceScatter(gathered * gathered, {"tensor"}, 1);  // [4,2]
                                const Value moved = CollectivePermute(x, "tensor", 1);
                                const Value turned = AllToAll(x, "tensor", 0, 1);  // [1,8]
                                return Values{gathered, scattered * moved, summed, moved, turned};
                              });
              }}));
  cases.push_back(Meshed(
      {"manual_partial_sum", {F({8, 8}), F({8, 3})}, [](Values v) {
         // Contraction over a split dimension, a captured value, a captured weight that every
         // device sees whole.
         const Value bias = ReduceSum(v[1], {0});
         return Manual(v, {{kColumns, Sharding{{{"tensor"}, {}}}}, {kWhole}, {"data", "tensor"}},
                       [&](Values in) {
                         const Value partial = Dot(Tanh(in[0]), in[1]);
                         return Values{AllReduce(partial, {"tensor"}) * BroadcastTo(bias, {8, 3})};
                       });
       }}));
  cases.push_back(
      Meshed({"manual_identity", {F({4, 8}), F({8, 8})}, [](Values v) {
                // Returns its inputs and a function of a captured value.
                return Manual(v, {{kBlocks, kWhole}, {kBlocks, kWhole, kWhole}, {"data", "tensor"}},
                              [&](Values in) { return Values{in[0], in[1], Sin(v[1])}; });
              }}));
  cases.push_back(Meshed(
      {"manual_regions", {F({4, 8}, -0.7, 0.7), F({8, 8}, -0.7, 0.7)}, [](Values v) {
         Graph& g = v[0].graph();
         const Value bias = Sin(ReduceSum(v[1], {0}));  // [8], captured
         return Manual(
             v, {{kRows, kColumns}, {kBlocks, kRows, Sharding{{{}}}}, {"data", "tensor"}},
             [&](Values in) {
               const Value mine = Tanh(Dot(in[0], in[1]));  // [2,2]
               const Function f = DefineFunction(
                   g, {mine.type()}, [](Values u) { return Values{Sin(Exp(Tanh(u[0])))}; });
               const auto layer = [&](Values u) {
                 const Value whole = AllGather(u[0], {"tensor"}, -1);  // [2,8]
                 const Value part =
                     CheckpointName(Tanh(Dot(whole * BroadcastTo(bias, {2, 8}), in[1])), "part");
                 return Values{KernelCall(ScaledSquare(), {{"scale", 0.5f}}, {part})[0] * u[0]};
               };
               const Value looped =
                   Scan({mine}, {},
                        [&](Values c, Values) {
                          return ScanStep{{Call(f, Remat(c, layer, {.save = {"part"}}))[0] * 0.5},
                                          {}};
                        },
                        {.length = 3})
                       .carry[0];
               // Devices of one row choose alike, the rows differ.
               const Value odd =
                   Compare(Cmp::kEq, AxisIndex(g, "data"), Splat(g, 1, {DType::kU32, {}}));
               const Value chosen = Cond(
                   odd, [&] { return Values{AllReduce(looped * looped, {"tensor"})}; },
                   [&] { return Values{mine}; })[0];
               return Values{chosen, AllGather(looped, {"tensor"}, 1),
                             AllReduce(ReduceSum(looped, {0}), {"data", "tensor"})};
             });
       }}));
  cases.push_back(Meshed(
      {"manual_in_regions",
       {F({4, 8}, -0.7, 0.7), F({3, 8, 8}, -0.7, 0.7), F({}), I({}, 1, 1)},
       [](Values v) {
         const Shape block{2, 2};
         const auto layer = [&](Values in) {
           return Manual({in[0], in[1]}, {{kRows, kColumns}, {kRows}, {"data", "tensor"}},
                         [&](Values u) {
                           const Value kept = Remat({Dot(u[0], u[1])}, [&](Values p) {
                             return KernelCall(ScaledSquare(), {{"scale", 0.5f}},
                                               {Sin(p[0] * BroadcastTo(v[2], block))});
                           })[0];
                           return Values{AllGather(kept, {"tensor"}, 1)};
                         });
         };
         const Value plain = Scan({v[0]}, {v[1]}, [&](Values c, Values l) {
                               return ScanStep{{layer({c[0], l[0]})[0] + c[0]}, {}};
                             }).carry[0];
         const Value rerun =
             Scan({v[0]}, {v[1]},
                  [&](Values c, Values l) { return ScanStep{Remat({c[0], l[0]}, layer), {}}; },
                  {.reverse = true})
                 .carry[0];
         const Value first = Reshape(Slice(v[1], {0, 0, 0}, {1, 8, 8}), {8, 8});
         const Value chosen = Cond(
             Compare(Cmp::kGt, v[3], ZerosLike(v[3])), [&] { return layer({v[0], first}); },
             [&] { return Values{v[0]}; })[0];
         return Values{plain, rerun, chosen};
       }}));
  cases.push_back(
      Meshed({"manual_over_one_axis", {F({4, 8}, -0.7, 0.7), F({8, 8}, -0.7, 0.7)}, [](Values v) {
                return Scan({v[0]}, {},
                            [&](Values c, Values) {
                              return ScanStep{
                                  Manual({c[0], v[1]}, {{kWhole, kColumns}, {kColumns}, {"tensor"}},
                                         [](Values in) {
                                           const Value row = Reshape(ReduceSum(in[0], {1}), {4, 1});
                                           return Values{
                                               Tanh(Dot(in[0], in[1]) * BroadcastTo(row, {4, 2}))};
                                         }),
                                  {}};
                            },
                            {.length = 2})
                    .carry;
              }}));
  cases.push_back(Meshed(Whole("manual_while", {F({4, 8})}, [](Values v) {
    // Every device stops at a step of its own.
    return Manual(v, {{kBlocks}, {kBlocks}, {"data", "tensor"}}, [](Values in) {
      const Value last = AxisIndex(in[0].graph(), "tensor") + AxisIndex(in[0].graph(), "data");
      return Values{While(
          {in[0], ZerosLike(last)}, [&](Values c) { return Compare(Cmp::kLt, c[1], last); },
          [](Values c) { return Values{c[0] * 2.0, c[1] + SplatLike(c[1], 1)}; })[0]};
    });
  })));
  cases.push_back(Meshed(Whole("axis_index", {F({8, 8})}, [](Values v) {
    return Manual(
        {v[0]}, {{kBlocks}, {Sharding{{{"data", "tensor"}}}}, {"data", "tensor"}}, [](Values in) {
          const Value code =
              AxisIndex(in[0].graph(), "data") * SplatLike(AxisIndex(in[0].graph(), "data"), 10) +
              AxisIndex(in[0].graph(), "tensor");
          return Values{Reshape(code, {1})};
        });
  })));
}

// Weight of element i of output k in the loss: different for every element, none small.
double Weight(size_t output, size_t element) {
  return 0.6 + 0.35 * std::sin(1.7 * static_cast<double>(element) + static_cast<double>(output));
}

Value LossOf(Graph& graph, const Values& outputs) {
  Value loss;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!IsFloat(outputs[k].dtype())) continue;
    HostTensor weights(TensorType{DType::kF64, outputs[k].shape()});
    for (int64_t i = 0; i < weights.num_elements(); ++i)
      weights.Set(i, Weight(k, static_cast<size_t>(i)));
    const Value w = Convert(Constant(graph, weights), outputs[k].dtype());
    Dims axes;
    for (int64_t d = 0; d < outputs[k].rank(); ++d) axes.push_back(d);
    const Value term = Convert(ReduceSum(outputs[k] * w, axes), DType::kF64);
    loss = AddMaybe(loss, term);
  }
  return loss;
}

}  // namespace

const std::vector<OpCase>& AllOpCases() {
  static const std::vector<OpCase> kCases = [] {
    std::vector<OpCase> cases;
    AddElementwise(cases);
    AddShapes(cases);
    AddReductionsAndLookup(cases);
    AddGradientControl(cases);
    AddScans(cases);
    AddSharded(cases);
    return cases;
  }();
  return kCases;
}

CaseProgram AddCase(Graph& graph, const OpCase& op_case, DType dtype, bool gradients,
                    const std::string& prefix) {
  CaseProgram program;
  Values inputs, wrt;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    TensorType type = op_case.inputs[i].type;
    if (type.dtype == DType::kF32) type.dtype = dtype;
    inputs.push_back(graph.Parameter(fmt::format("{}in{}", prefix, i), type));
    if (IsFloat(type.dtype)) {
      wrt.push_back(inputs.back());
      program.differentiated.push_back(i);
    }
  }
  const Values outputs = op_case.build(inputs);
  program.num_outputs = outputs.size();
  for (size_t k = 0; k < outputs.size(); ++k)
    graph.Result(fmt::format("{}out{}", prefix, k), outputs[k]);
  if (gradients && op_case.differentiable) {
    const Values grads = Grad(LossOf(graph, outputs), wrt);
    for (size_t i = 0; i < grads.size(); ++i)
      graph.Result(fmt::format("{}grad{}", prefix, program.differentiated[i]), grads[i]);
  } else {
    program.differentiated.clear();
  }
  return program;
}

CaseProgram BuildCase(const OpCase& op_case, DType dtype, bool gradients) {
  auto graph = std::make_unique<Graph>("case_" + op_case.name, op_case.mesh);
  CaseProgram program = AddCase(*graph, op_case, dtype, gradients, "");
  program.graph = std::move(graph);
  return program;
}

std::vector<RefTensor> CaseInputs(const OpCase& op_case, DType dtype) {
  std::vector<RefTensor> inputs;
  uint64_t state = 88172645463325252u;  // xorshift: the same on every machine
  for (const CaseInput& input : op_case.inputs) {
    TensorType type = input.type;
    if (type.dtype == DType::kF32) type.dtype = dtype;
    RefTensor t = RefTensor::Zeros(type);
    for (double& x : t.data) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      const double u = static_cast<double>(state >> 11) * 0x1p-53;
      x = IsFloat(type.dtype) ? input.low + u * (input.high - input.low)
                              : std::floor(input.low + u * (input.high - input.low + 1));
      x = RoundTo(type.dtype, std::min(x, input.high));
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

double CaseLoss(const OpCase& op_case, const std::vector<RefTensor>& inputs) {
  Graph graph("loss", op_case.mesh);
  Values parameters;
  for (size_t i = 0; i < inputs.size(); ++i)
    parameters.push_back(graph.Parameter(fmt::format("in{}", i), inputs[i].type));
  graph.Result("loss", LossOf(graph, op_case.build(parameters)));
  return Interpret(graph, inputs, {.round = false})[0].data[0];
}

std::vector<const OpDef*> OpsIn(const Graph& graph) {
  std::set<const OpDef*> ops;
  const std::function<void(const Region&)> walk = [&](const Region& region) {
    for (const Node* node : region.nodes) {
      ops.insert(node->op);
      for (const Region* inner : node->regions) walk(*inner);
    }
  };
  walk(graph.root());
  return {ops.begin(), ops.end()};
}

}  // namespace ulmus::graph
