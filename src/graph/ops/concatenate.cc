#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

struct ConcatenateAttrs : Attrs {
  int64_t axis = 0;
};

}  // namespace

const OpDef kConcatenate = {
    .name = "stablehlo.concatenate",
    .vjp =
        [](const VjpContext& c) {
          const auto axis = static_cast<size_t>(c.node.attrs_as<ConcatenateAttrs>().axis);
          const Value ct = c.cotangent();
          Values parts;
          Dims starts(static_cast<size_t>(ct.rank()), 0), limits = ct.shape().dims();
          for (Value part : c.node.operands) {
            limits[axis] = starts[axis] + part.shape().dims()[axis];
            parts.push_back(Slice(ct, starts, limits));
            starts[axis] = limits[axis];
          }
          return parts;
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.concatenate {}, dim = {} : ({}) -> {}", p.Names(n.operands),
                 n.attrs_as<ConcatenateAttrs>().axis, p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const auto axis = static_cast<size_t>(n.attrs_as<ConcatenateAttrs>().axis);
          int64_t offset = 0;
          for (const RefTensor* part : in) {
            ForEachIndex(part->type.shape, [&](const Dims& index, int64_t flat) {
              Dims target = index;
              target[axis] += offset;
              out.data[static_cast<size_t>(FlatIndex(out.type.shape, target))] =
                  part->data[static_cast<size_t>(flat)];
            });
            offset += part->type.shape.dims()[axis];
          }
          return std::vector{std::move(out)};
        },
};

Value Concatenate(Values parts, int64_t axis, Loc loc) {
  CHECK_AT(loc, !parts.empty(), "{}: no parts", kConcatenate.name);
  if (parts.size() == 1) return parts[0];
  auto attrs = std::make_shared<ConcatenateAttrs>();
  attrs->axis = NormalizeAxis(kConcatenate, axis, parts[0].rank(), loc);
  const auto along = static_cast<size_t>(attrs->axis);
  Dims dims = parts[0].shape().dims();
  for (size_t i = 1; i < parts.size(); ++i) {
    Dims other = parts[i].shape().dims();
    CHECK_AT(loc, other.size() == dims.size() && parts[i].dtype() == parts[0].dtype(),
             "{}: part 0 is {}, part {} is {}", kConcatenate.name, parts[0].type().ToString(), i,
             parts[i].type().ToString());
    const int64_t size = std::exchange(other[along], dims[along]);
    CHECK_AT(loc, other == dims, "{} along axis {}: part 0 is {}, part {} is {}", kConcatenate.name,
             along, parts[0].shape().ToString(), i, parts[i].shape().ToString());
    dims[along] += size;
  }
  const DType dtype = parts[0].dtype();
  return MakeValue(kConcatenate, std::move(parts), {dtype, Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
