#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kReduceScatter = {
    .name = "stablehlo.reduce_scatter",
    .vjp =
        [](const VjpContext& c) {
          const auto& a = c.node.attrs_as<CollectiveAttrs>();
          return Values{AllGather(c.cotangent(), a.axes, a.dim)};
        },
    .print =
        [](Printer& p, const Node& n) {
          const std::string a = p.FreshName(), b = p.FreshName(), sum = p.FreshName(),
                            t = MlirType({n.results[0].dtype, {}});
          p.Emit(n,
                 "\"stablehlo.reduce_scatter\"({}) <{{scatter_dimension = {} : i64, {}, "
                 "use_global_device_ids}}> ({{\n      ^bb0({}: {}, {}: "
                 "{}):\n        {} = stablehlo.add {}, {} : {}\n        stablehlo.return {} : {}\n "
                 "     }}) : ({}) -> {}",
                 p.Name(n.operands[0]), n.attrs_as<CollectiveAttrs>().dim, ChannelText(p, n), a, t,
                 b, t, sum, a, b, t, sum, t, p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          EvaluateGroups(interpreter, n, [&](const auto& members) {
            const RefTensor sum = SumOf(members);
            std::vector<RefTensor> blocks;
            const auto count = static_cast<int64_t>(members.size());
            for (int64_t i = 0; i < count; ++i)
              blocks.push_back(BlockOf(sum, n.attrs_as<CollectiveAttrs>().dim, i, count));
            return blocks;
          });
        },
};

Value ReduceScatter(Value x, std::vector<std::string> axes, int64_t dim, Loc loc) {
  const int64_t size = GroupSize(x.graph().mesh(), axes);
  if (size == 1) return x;
  CheckManual(kReduceScatter.name, x.graph(), axes, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->dim = NormalizeAxis(kReduceScatter, dim, x.rank(), loc);
  attrs->axes = std::move(axes);
  Dims dims = x.shape().dims();
  int64_t& scattered = dims[static_cast<size_t>(attrs->dim)];
  CHECK_AT(loc, scattered % size == 0, "{}: dimension {} of {}: {} % {} = {}", kReduceScatter.name,
           attrs->dim, x.shape().ToString(), scattered, size, scattered % size);
  scattered /= size;
  return MakeValue(kReduceScatter, {x}, {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
