// Mistakes in building a program abort at once, naming the op, what it was given, and the line that
// called it.
#include <gtest/gtest.h>

#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

struct BadProgram {
  const char* name;
  void (*build)(Graph& g, Value x, Value y);  // x f32[2,3], y f32[3,2]
  const char* message;  // regular expression; the line of this file comes before it
};

class BadProgramDeathTest : public testing::TestWithParam<BadProgram> {};

TEST_P(BadProgramDeathTest, NamesOpShapesAndLine) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Graph g("bad", Mesh({{"fsdp", 4}, {"tensor", 2}}), {{"batch", {"fsdp"}}});
  const Value x = g.Parameter("x", {DType::kF32, {2, 3}}),
              y = g.Parameter("y", {DType::kF32, {3, 2}});
  EXPECT_DEATH(GetParam().build(g, x, y),
               std::string("src/graph/bad_programs_test.cc:[0-9]+: .*") + GetParam().message);
}

const BadProgram kBadPrograms[] = {
    {"add", [](Graph&, Value x, Value y) { x + y; },
     "stablehlo.add: operand types differ: f32\\[2,3\\] and f32\\[3,2\\]"},
    {"dtype", [](Graph&, Value x, Value) { x + Convert(x, DType::kBF16); },
     "stablehlo.add: operand types differ: f32\\[2,3\\] and bf16\\[2,3\\]"},
    {"dot", [](Graph&, Value x, Value) { Dot(x, x); }, "dot: f32\\[2,3\\] x f32\\[2,3\\]"},
    {"dot_general", [](Graph&, Value x, Value y) { DotGeneral(x, y, {{0}, {0}, {1}, {1}}, {}); },
     "stablehlo.dot_general: f32\\[2,3\\] x f32\\[3,2\\] with batch axes \\[0\\] x \\[0\\]"},
    {"reshape", [](Graph&, Value x, Value) { Reshape(x, {4}); },
     "stablehlo.reshape: \\[2,3\\] has 6 elements, \\[4\\] has 4"},
    {"transpose", [](Graph&, Value x, Value) { Transpose(x, {0, 0}); },
     "stablehlo.transpose: \\[0, 0\\] is not a permutation"},
    {"broadcast", [](Graph&, Value x, Value) { BroadcastTo(x, {4, 2}); },
     "stablehlo.broadcast_in_dim: \\[2,3\\] does not broadcast to \\[4,2\\]"},
    {"slice", [](Graph&, Value x, Value) { Slice(x, {0, 0}, {2, 4}); },
     "stablehlo.slice: \\[2,3\\] from \\[0, 0\\] to \\[2, 4\\]"},
    {"concatenate", [](Graph&, Value x, Value y) { Concatenate({x, y}, 0); },
     "stablehlo.concatenate along axis 0: part 0 is \\[2,3\\], part 1 is \\[3,2\\]"},
    {"select", [](Graph&, Value x, Value y) { Select(Compare(Cmp::kGt, x, x), x, y); },
     "stablehlo.select: bool\\[2,3\\] . f32\\[2,3\\] : f32\\[3,2\\]"},
    {"reduce", [](Graph&, Value x, Value) { ReduceSum(x, {2}); },
     "stablehlo.add: axis 2 of a tensor of rank 2"},
    {"take", [](Graph&, Value x, Value y) { Take(x, y); },
     "stablehlo.gather: table f32\\[2,3\\] looked up by f32\\[3,2\\]"},
    {"not_of_floats", [](Graph&, Value x, Value) { Not(x); }, "stablehlo.not of f32\\[2,3\\]"},
    {"top_k", [](Graph&, Value x, Value) { TopK(x, 4); }, "chlo.top_k: k = 4 of f32\\[2,3\\]"},
    {"scan_carry",
     [](Graph&, Value x, Value y) {
       Scan({x}, {y}, [](Values, Values in) { return ScanStep{{in[0]}, {}}; });
     },
     "scan: carry 0 is f32\\[2,3\\] on entry and f32\\[2\\] after a step"},
    {"scan_length",
     [](Graph&, Value x, Value) {
       Scan({x}, {}, [](Values c, Values) { return ScanStep{c, {}}; });
     },
     "scan: length -1; give ScanOptions::length"},
    {"scan_xs",
     [](Graph&, Value x, Value y) { Scan({}, {x, y}, [](Values, Values) { return ScanStep{}; }); },
     "scan: xs f32\\[3,2\\] does not have the leading size 2"},
    {"cond",
     [](Graph& g, Value x, Value y) {
       Cond(Splat(g, 1, {DType::kBool, {}}), [&] { return Values{x}; }, [&] { return Values{y}; });
     },
     "stablehlo.if: result 0 is f32\\[2,3\\] in one branch and f32\\[3,2\\] in the other"},
    {"call",
     [](Graph& g, Value x, Value y) {
       Call(DefineFunction(g, {x.type()}, [](Values v) { return v; }), {y});
     },
     "call: argument 0 is f32\\[3,2\\], the function takes f32\\[2,3\\]"},
    {"capture_in_function",
     [](Graph& g, Value x, Value) {
       DefineFunction(g, {x.type()}, [&](Values v) { return Values{v[0] + x}; });
     },
     "function: the body uses parameter f32\\[2,3\\] from outside"},
    {"escaped_value",
     [](Graph&, Value x, Value) {
       Value inside;
       Remat({x}, [&](Values in) {
         inside = Exp(in[0]);
         return Values{inside};
       });
       Neg(inside);
     },
     "a value made here \\(stablehlo.exponential f32\\[2,3\\]\\) is used outside the region that "
     "made it"},
    {"sharding", [](Graph&, Value x, Value) { ShardAs(x, {"batch", ""}); },
     "sdy.sharding_constraint: dimension 0 of \\[2,3\\] does not divide over the mesh: 2 % "
     "\\(fsdp=4\\) = 2"},
    {"logical_axis", [](Graph&, Value x, Value) { ShardAs(x, {"heads", ""}); },
     "no sharding rule for the logical axis 'heads'; known: batch"},
    {"collective_outside", [](Graph&, Value x, Value) { AllReduce(x, {"fsdp"}); },
     "stablehlo.all_reduce: collectives stand inside Manual only"},
    {"manual_rank",
     [](Graph&, Value x, Value) {
       Manual({x}, {{Sharding{{{"tensor"}, {}}}}, {Sharding{{{"tensor"}}}}, {"tensor"}},
              [](Values in) { return in; });
     },
     "sdy.manual_computation: output 0 is f32\\[1,3\\], its sharding \\[.tensor.\\] has another "
     "rank"},
    {"manual_axis",
     [](Graph&, Value x, Value) {
       Manual({x}, {{Sharding{{{"tensor"}, {}}}}, {Sharding{{{}, {}}}}, {"fsdp"}},
              [](Values in) { return in; });
     },
     "sdy.manual_computation: input 0 is split over 'tensor', which is not among the manual axes "
     "\\(fsdp\\)"},
    {"reverse_twice", [](Graph&, Value x, Value) { Reverse(x, {0, -2}); },
     "stablehlo.reverse: an axis of \\[0, 0\\] is named twice"},
    {"donation", [](Graph& g, Value x, Value y) { g.Result("y", y, {}, x); },
     "result 'y' f32\\[3,2\\] .* cannot take the buffer of parameter 'x' f32\\[2,3\\]"},
    {"check_shape", [](Graph&, Value x, Value) { CHECK_SHAPE(x, {2, 4}); },
     "shape of x is \\[2,3\\], expected \\[2,4\\]"},
};

INSTANTIATE_TEST_SUITE_P(Ops, BadProgramDeathTest, testing::ValuesIn(kBadPrograms),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace ulmus::graph
