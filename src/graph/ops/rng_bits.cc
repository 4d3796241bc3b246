#include "graph/ops/op.h"

#include <bit>
#include <utility>

namespace ulmus::graph {

namespace {

// Threefry-2x32, 20 rounds: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", figure 2.
std::pair<uint32_t, uint32_t> Threefry(uint64_t key, uint64_t counter) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0], x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
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

}  // namespace

const OpDef kRngBits = {
    .name = "stablehlo.rng_bit_generator",
    .vjp = [](const VjpContext&) { return Values{Value()}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.rng_bit_generator {}, algorithm = THREE_FRY : ({}) -> ({})", p.Name(n.operands[0]), p.Type(n.operands[0]),
                 MlirTypes(n.results));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          // XLA's layout: pair i of the output comes from counter + i, first words then second words.
          RefTensor state = *in[0], bits = RefTensor::Zeros(n.results[1]);
          const auto key = static_cast<uint64_t>(in[0]->data[0]), counter = static_cast<uint64_t>(in[0]->data[1]);
          const size_t half = (bits.data.size() + 1) / 2;
          for (size_t i = 0; i < half; ++i) {
            const auto [a, b] = Threefry(key, counter + i);
            bits.data[i] = a;
            if (half + i < bits.data.size()) bits.data[half + i] = b;
          }
          state.data[1] = static_cast<double>(counter + half);
          return std::vector{std::move(state), std::move(bits)};
        },
};

RngResult RngBits(Value state, Shape shape, Loc loc) {
  CHECK_AT(loc, state.type() == (TensorType{DType::kU64, {2}}), "{}: state {}, wants u64[2] = (key, counter)", kRngBits.name, state.type().ToString());
  const Values out = MakeValues(kRngBits, {state}, {state.type(), {DType::kU32, std::move(shape)}}, loc);
  return {out[0], out[1]};
}

}  // namespace ulmus::graph
