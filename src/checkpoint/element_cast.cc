#include "checkpoint/element_cast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace ulmus::checkpoint {
namespace {

// f64 -> f32 that leaves a second rounding to 16 bits right: toward zero, with the last bit set if
// anything was cut ("round to odd").
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) return nearest;
  float toward_zero = nearest;
  if (std::isinf(nearest) || std::abs(static_cast<double>(nearest)) > std::abs(value))
    toward_zero = std::nextafterf(nearest, 0.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(toward_zero) | 1u);
}

template <class From, class To>
To CastOne(From value) {
  if constexpr (std::is_same_v<From, double>) {
    if constexpr (std::is_same_v<To, float>)
      return static_cast<float>(value);
    else
      return To(RoundToOdd(value));
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

template <class T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return static_cast<double>(static_cast<float>(value));
}

// Through fixed blocks on the stack, which the compiler vectorises and which need no alignment.
template <class From, class To>
int64_t Cast(std::span<const std::byte> in, std::span<std::byte> out) {
  constexpr size_t kBlock = 256;
  std::array<From, kBlock> from{};
  std::array<To, kBlock> to{};
  int64_t overflows = 0;
  const size_t count = in.size() / sizeof(From);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = std::min(kBlock, count - first);
    std::memcpy(from.data(), in.data() + first * sizeof(From), n * sizeof(From));
    for (size_t i = 0; i < kBlock; ++i) to[i] = CastOne<From, To>(from[i]);
    std::memcpy(out.data() + first * sizeof(To), to.data(), n * sizeof(To));
    if constexpr (sizeof(To) < sizeof(From) || std::is_same_v<To, F16>) {
      for (size_t i = 0; i < n; ++i)
        overflows += std::isinf(AsDouble(to[i])) && !std::isinf(AsDouble(from[i]));
    }
  }
  return overflows;
}

template <class From>
int64_t CastFrom(DType to, std::span<const std::byte> in, std::span<std::byte> out) {
  switch (to) {
    case DType::kF16:
      return Cast<From, F16>(in, out);
    case DType::kBF16:
      return Cast<From, BF16>(in, out);
    case DType::kF32:
      return Cast<From, float>(in, out);
    default:
      return Cast<From, double>(in, out);
  }
}

}  // namespace

bool CanCast(DType from, DType to) { return from == to || (IsFloat(from) && IsFloat(to)); }

int64_t CastElements(DType from, DType to, std::span<const std::byte> in,
                     std::span<std::byte> out) {
  CHECK(CanCast(from, to), "{} to {}", Name(from), Name(to));
  CHECK(in.size() / static_cast<size_t>(SizeBytes(from)) ==
            out.size() / static_cast<size_t>(SizeBytes(to)),
        "{} bytes of {} to {} bytes of {}", in.size(), Name(from), out.size(), Name(to));
  if (from == to) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return 0;
  }
  switch (from) {
    case DType::kF16:
      return CastFrom<F16>(to, in, out);
    case DType::kBF16:
      return CastFrom<BF16>(to, in, out);
    case DType::kF32:
      return CastFrom<float>(to, in, out);
    default:
      return CastFrom<double>(to, in, out);
  }
}

}  // namespace ulmus::checkpoint
