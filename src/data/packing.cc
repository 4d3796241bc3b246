#include "data/packing.h"

#include <bit>
#include <utility>

#include "base/check.h"

namespace ulmus::data {
namespace {

constexpr int64_t kNone = -1;

// Numbers of documents by length descending, equal lengths in their order: a counting sort.
std::vector<int64_t> LongestFirst(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<int64_t> start(static_cast<size_t>(capacity) + 2, 0);
  for (int64_t length : lengths) {
    CHECK(length > 0 && length <= capacity, "document of {} tokens, instances of {}", length,
          capacity);
    ++start[static_cast<size_t>(capacity - length) + 1];
  }
  for (size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
  std::vector<int64_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<size_t>(start[static_cast<size_t>(capacity - lengths[i])]++)] =
        static_cast<int64_t>(i);
  return order;
}

// A set of numbers below a limit with "smallest member that is at least x": words of bits, and
// words of bits that say which words are not empty.
class SuccessorSet {
 public:
  explicit SuccessorSet(int64_t limit) {
    for (auto size = static_cast<size_t>(limit); levels_.empty() || size > 1;) {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    }
  }
  void Insert(int64_t x) {
    auto at = static_cast<size_t>(x);
    for (std::vector<uint64_t>& level : levels_) {
      level[at / 64] |= uint64_t{1} << at % 64;
      at /= 64;
    }
  }
  void Erase(int64_t x) {
    auto at = static_cast<size_t>(x);
    for (std::vector<uint64_t>& level : levels_) {
      level[at / 64] &= ~(uint64_t{1} << at % 64);
      if (level[at / 64] != 0) return;
      at /= 64;
    }
  }
  // kNone if there is none.
  int64_t AtLeast(int64_t x) const {
    auto at = static_cast<size_t>(x);
    for (size_t depth = 0; depth < levels_.size(); ++depth) {
      const size_t word = at / 64;
      if (word >= levels_[depth].size()) return kNone;
      const uint64_t rest = levels_[depth][word] >> at % 64 << at % 64;
      if (rest != 0) return Descend(depth, word * 64 + static_cast<size_t>(std::countr_zero(rest)));
      at = word + 1;
    }
    return kNone;
  }

 private:
  int64_t Descend(size_t depth, size_t at) const {
    for (; depth > 0; --depth)
      at = at * 64 + static_cast<size_t>(std::countr_zero(levels_[depth - 1][at]));
    return static_cast<int64_t>(at);
  }
  std::vector<std::vector<uint64_t>> levels_;
};

// Open instances by the room they have left, first in, first out.
class OpenInstances {
 public:
  explicit OpenInstances(int64_t capacity)
      : rooms_(capacity + 1),
        head_(static_cast<size_t>(capacity) + 1, kNone),
        tail_(static_cast<size_t>(capacity) + 1, kNone) {}

  // Takes out the best instance for `length` tokens and says what room it had.
  std::pair<int64_t, int64_t> Take(int64_t length) {
    const int64_t room = rooms_.AtLeast(length);
    if (room == kNone) return {kNone, 0};
    const int64_t instance = head_[static_cast<size_t>(room)];
    head_[static_cast<size_t>(room)] = next_[static_cast<size_t>(instance)];
    if (head_[static_cast<size_t>(room)] == kNone) rooms_.Erase(room);
    return {instance, room};
  }
  void Put(int64_t instance, int64_t room) {
    if (room == 0) return;
    if (static_cast<size_t>(instance) >= next_.size())
      next_.resize(static_cast<size_t>(instance) + 1, kNone);
    next_[static_cast<size_t>(instance)] = kNone;
    const auto at = static_cast<size_t>(room);
    if (head_[at] == kNone) {
      head_[at] = instance;
      rooms_.Insert(room);
    } else {
      next_[static_cast<size_t>(tail_[at])] = instance;
    }
    tail_[at] = instance;
  }

 private:
  SuccessorSet rooms_;
  std::vector<int64_t> head_;
  std::vector<int64_t> tail_;
  std::vector<int64_t> next_;  // of an instance: the one behind it
};

}  // namespace

Packing PackBestFit(std::span<const int64_t> lengths, int64_t capacity) {
  const std::vector<int64_t> order = LongestFirst(lengths, capacity);
  std::vector<int64_t> instance_of(order.size());  // by place in `order`
  OpenInstances open(capacity);
  Packing packing;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t length = lengths[static_cast<size_t>(order[i])];
    auto [instance, room] = open.Take(length);
    if (instance == kNone) {
      instance = packing.num_instances();
      room = capacity;
      packing.first.push_back(0);
    }
    instance_of[i] = instance;
    ++packing.first[static_cast<size_t>(instance) + 1];
    open.Put(instance, room - length);
  }
  for (size_t k = 1; k < packing.first.size(); ++k) packing.first[k] += packing.first[k - 1];
  std::vector<int64_t> next(packing.first.begin(), packing.first.end() - 1);
  packing.documents.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    packing.documents[static_cast<size_t>(next[static_cast<size_t>(instance_of[i])]++)] = order[i];
  return packing;
}

}  // namespace ulmus::data
