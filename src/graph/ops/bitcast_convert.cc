#include "graph/ops/op.h"

#include <cstring>

namespace ulmus::graph {

const OpDef kBitcastConvert = {
    .name = "stablehlo.bitcast_convert",
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.bitcast_convert {} : ({}) -> {}", p.Name(n.operands[0]),
                 p.Type(n.operands[0]), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          const HostTensor from = in[0]->ToHost();
          HostTensor to(n.results[0]);
          std::memcpy(to.bytes().data(), from.bytes().data(), to.bytes().size());
          return std::vector{RefTensor::FromHost(to)};
        },
};

Value BitcastConvert(Value x, DType dtype, Loc loc) {
  CHECK_AT(loc, SizeBytes(x.dtype()) == SizeBytes(dtype), "{}: {} and {} have different widths",
           kBitcastConvert.name, x.type().ToString(), Name(dtype));
  return MakeValue(kBitcastConvert, {x}, {dtype, x.shape()}, loc);
}

}  // namespace ulmus::graph
