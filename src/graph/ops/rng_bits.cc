#include "graph/ops/op.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ulmus::graph {

namespace {

// Threefry-2x32, 20 rounds: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
// figure 2.
std::pair<uint32_t, uint32_t> Threefry(uint64_t key, uint64_t counter) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0],
           x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, r) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

size_t SplitAxis(const Dims& dims) {
  const auto even = std::ranges::find_if(dims, [](int64_t d) { return d % 2 == 0; });
  return static_cast<size_t>((even != dims.end() ? even : std::ranges::max_element(dims)) -
                             dims.begin());
}

}  // namespace

const OpDef kRngBits = {
    .name = "stablehlo.rng_bit_generator",
    .vjp = [](const VjpContext&) { return Values{Value()}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.rng_bit_generator {}, algorithm = THREE_FRY : ({}) -> ({})",
                 p.Name(n.operands[0]), p.Type(n.operands[0]), MlirTypes(n.results));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          // XLA halves the first even axis (the longest, if none is even), rounded up. Pair i comes
          // from counter + i; its two words stand side by side along that axis.
          RefTensor state = *in[0], bits = RefTensor::Zeros(n.results[1]);
          const auto key = static_cast<uint64_t>(in[0]->data[0]),
                     counter = static_cast<uint64_t>(in[0]->data[1]);
          Dims half = bits.type.shape.dims();
          const size_t axis = SplitAxis(half);
          half[axis] = (half[axis] + 1) / 2;
          ForEachIndex(Shape(half), [&](const Dims& index, int64_t flat) {
            const auto [a, b] = Threefry(key, counter + static_cast<uint64_t>(flat));
            Dims first = index, second = index;
            first[axis] = 2 * index[axis], second[axis] = first[axis] + 1;
            bits.data[static_cast<size_t>(FlatIndex(bits.type.shape, first))] = a;
            if (second[axis] < bits.type.shape.dims()[axis])
              bits.data[static_cast<size_t>(FlatIndex(bits.type.shape, second))] = b;
          });
          state.data[1] =
              static_cast<double>(counter + static_cast<uint64_t>(Shape(half).num_elements()));
          return std::vector{std::move(state), std::move(bits)};
        },
};

RngResult RngBits(Value state, Shape shape, Loc loc) {
  CHECK_AT(loc, shape.rank() > 0, "{}: wants a shape of rank 1 or more", kRngBits.name);
  CHECK_AT(loc, state.type() == (TensorType{DType::kU64, {2}}),
           "{}: state {}, wants u64[2] = (key, counter)", kRngBits.name, state.type().ToString());
  const Values out =
      MakeValues(kRngBits, {state}, {state.type(), {DType::kU32, std::move(shape)}}, loc);
  return {out[0], out[1]};
}

}  // namespace ulmus::graph
