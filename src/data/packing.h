// Packs documents into instances with as little padding as best-fit-decreasing leaves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ulmus::data {

// Instance k holds documents[first[k] .. first[k + 1]), numbers of the given lengths, in this
// order.
struct Packing {
  std::vector<int64_t> first = {0};
  std::vector<int64_t> documents;
  int64_t num_instances() const { return static_cast<int64_t>(first.size()) - 1; }
  std::span<const int64_t> instance(int64_t k) const {
    const auto at = static_cast<size_t>(k);
    return std::span(documents).subspan(static_cast<size_t>(first[at]),
                                        static_cast<size_t>(first[at + 1] - first[at]));
  }
};

// Longest documents first, each into the open instance with the least room that is enough, the one
// that has waited longest at that room; else into a new one. Every length in 1 .. capacity (CHECK).
// Source: Ding et al. 2024, "Fewer Truncations Improve Language Modeling"; OLMo-core
// InstancePacker. Differs from OLMo-core in one point: equal lengths keep the order of the files,
// where NumPy's default sort leaves them in an order of its own that differs between machines.
Packing PackBestFit(std::span<const int64_t> lengths, int64_t capacity);

}  // namespace ulmus::data
