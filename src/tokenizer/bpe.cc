#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace ulmus::tokenizer {
namespace {

constexpr size_t kMaxShortPiece = 48;  // above, looking at all pairs for each merge costs more

size_t TableSize(size_t num_entries) { return std::bit_ceil(2 * num_entries + 2); }

uint64_t Mix(uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  return value ^ value >> 32;
}

// Positions whose pair has one rank, taken from left to right.
struct Bucket {
  std::vector<uint32_t> positions;
  size_t next = 0;
  bool sorted = true;

  void Push(uint32_t position) {
    sorted = sorted && (positions.empty() || positions.back() <= position);
    positions.push_back(position);
  }
  void Sort() {
    if (sorted) return;
    std::sort(positions.begin() + static_cast<std::ptrdiff_t>(next), positions.end());
    sorted = true;
  }
};

}  // namespace

Bpe::Bpe(const Definition& definition)
    : pairs_(TableSize(definition.merges.size())), wholes_(TableSize(definition.vocab.size())) {
  std::copy(std::begin(definition.byte_ids), std::end(definition.byte_ids), byte_ids_.begin());
  for (size_t rank = 0; rank < definition.merges.size(); ++rank)
    AddPair(definition.merges[rank], static_cast<int32_t>(rank));

  std::vector<int32_t> ids;
  for (const VocabToken& token : definition.vocab) {
    if (token.bytes.empty()) continue;
    // A token that its own bytes do not merge to is not what the piece becomes.
    if (!definition.ignore_merges) {
      if (token.bytes.size() > kMaxKeyBytes) continue;
      ids.clear();
      MergePairs(token.bytes, ids);
      if (ids.size() != 1 || ids[0] != token.id) continue;
    }
    AddWhole(token);
  }
  std::sort(long_wholes_.begin(), long_wholes_.end(),
            [](const VocabToken& a, const VocabToken& b) { return a.bytes < b.bytes; });
}

void Bpe::AddPair(const Merge& merge, int32_t rank) {
  const uint64_t pair =
      static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
  size_t i = Mix(pair) & (pairs_.size() - 1);
  while (pairs_[i].rank >= 0) i = (i + 1) & (pairs_.size() - 1);
  pairs_[i] = {.pair = pair, .rank = rank, .merged = merge.merged};
}

void Bpe::AddWhole(const VocabToken& token) {
  if (token.bytes.size() > kMaxKeyBytes) {
    long_wholes_.push_back(token);
    return;
  }
  const auto num_bytes = static_cast<uint32_t>(token.bytes.size());
  const Key key = KeyOf(token.bytes, 0, num_bytes);
  size_t i = key.Hash(num_bytes) & (wholes_.size() - 1);
  while (wholes_[i].id >= 0) i = (i + 1) & (wholes_.size() - 1);
  wholes_[i] = {.low = key.low, .high = key.high, .num_bytes = num_bytes, .id = token.id};
}

uint64_t Bpe::Key::Hash(uint32_t num_bytes) const {
  return Mix(Mix(low + num_bytes) ^ high * 0xC2B2AE3D27D4EB4Fu);
}

Bpe::Key Bpe::KeyOf(std::string_view text, size_t start, size_t num_bytes) {
  Key key;
  if (start + kMaxKeyBytes <= text.size()) {
    // Read past the piece and clear the rest: faster than a copy of unknown length.
    std::memcpy(&key.low, text.data() + start, 8);
    std::memcpy(&key.high, text.data() + start + 8, 8);
    const auto mask = [](size_t bytes) {
      return bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * bytes) - 1;
    };
    key.low &= mask(num_bytes);
    key.high &= mask(num_bytes > 8 ? num_bytes - 8 : 0);
    return key;
  }
  std::memcpy(&key.low, text.data() + start, std::min(num_bytes, size_t{8}));
  if (num_bytes > 8) std::memcpy(&key.high, text.data() + start + 8, num_bytes - 8);
  return key;
}

const Bpe::PairSlot* Bpe::FindPair(int32_t left, int32_t right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  for (size_t i = Mix(pair) & (pairs_.size() - 1); pairs_[i].rank >= 0;
       i = (i + 1) & (pairs_.size() - 1)) {
    if (pairs_[i].pair == pair) return &pairs_[i];
  }
  return nullptr;
}

int32_t Bpe::FindWhole(const Key& key, uint32_t num_bytes, uint64_t hash) const {
  for (size_t i = hash & (wholes_.size() - 1); wholes_[i].id >= 0;
       i = (i + 1) & (wholes_.size() - 1)) {
    const WholeSlot& slot = wholes_[i];
    if (slot.low == key.low && slot.high == key.high && slot.num_bytes == num_bytes) return slot.id;
  }
  return -1;
}

void Bpe::Encode(std::string_view text, size_t start, size_t end, Cache& cache,
                 std::vector<int32_t>& ids) const {
  const size_t size = end - start;
  if (size == 1) {
    ids.push_back(byte_ids_[static_cast<uint8_t>(text[start])]);
    return;
  }
  const std::string_view piece = text.substr(start, size);
  if (size > kMaxKeyBytes) {
    const auto it = std::lower_bound(
        long_wholes_.begin(), long_wholes_.end(), piece,
        [](const VocabToken& token, std::string_view bytes) { return token.bytes < bytes; });
    if (it != long_wholes_.end() && it->bytes == piece) {
      ids.push_back(it->id);
    } else {
      MergePairs(piece, ids);
    }
    return;
  }
  const auto num_bytes = static_cast<uint32_t>(size);
  const Key key = KeyOf(text, start, size);
  const uint64_t hash = key.Hash(num_bytes);
  Cache::Entry& entry = cache.entries_[(hash >> 40) & (Cache::kNumEntries - 1)];
  if (entry.low != key.low || entry.high != key.high || entry.num_bytes != num_bytes) {
    const size_t before = ids.size();
    if (const int32_t whole = FindWhole(key, num_bytes, hash); whole >= 0) {
      ids.push_back(whole);
    } else {
      MergePairs(piece, ids);
    }
    const size_t num_ids = ids.size() - before;
    if (num_ids > Cache::kMaxIds) return;
    entry.low = key.low;
    entry.high = key.high;
    entry.num_bytes = num_bytes;
    entry.num_ids = static_cast<uint32_t>(num_ids);
    std::copy_n(ids.data() + before, num_ids, entry.ids.data());
    return;
  }
  ids.insert(ids.end(), entry.ids.data(), entry.ids.data() + entry.num_ids);
}

void Bpe::MergePairs(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() <= kMaxShortPiece) {
    MergeShort(piece, ids);
  } else {
    MergeLong(piece, ids);
  }
}

void Bpe::MergeShort(std::string_view piece, std::vector<int32_t>& ids) const {
  constexpr int32_t kNoRank = INT32_MAX;
  int32_t part[kMaxShortPiece];
  int32_t rank[kMaxShortPiece];    // of part i and part i+1
  int32_t merged[kMaxShortPiece];  // what they become
  size_t size = piece.size();
  const auto look_up = [&](size_t i) {
    const PairSlot* slot = i + 1 < size ? FindPair(part[i], part[i + 1]) : nullptr;
    rank[i] = slot == nullptr ? kNoRank : slot->rank;
    merged[i] = slot == nullptr ? -1 : slot->merged;
  };
  for (size_t i = 0; i < size; ++i) part[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i < size; ++i) look_up(i);
  while (size > 1) {
    const auto best = static_cast<size_t>(std::min_element(rank, rank + size - 1) - rank);
    if (rank[best] == kNoRank) break;
    part[best] = merged[best];
    for (int32_t* list : {part, rank, merged})
      std::copy(list + best + 2, list + size, list + best + 1);
    --size;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.insert(ids.end(), part, part + size);
}

// The same merges, with the pairs sorted into one bucket per rank, so that none is looked at for
// the merges of others. A merge may create a pair of lower rank than its own, which then comes
// first.
void Bpe::MergeLong(std::string_view piece, std::vector<int32_t>& ids) const {
  CHECK(piece.size() < UINT32_MAX, "a piece of {} bytes", piece.size());
  constexpr int32_t kMergedAway = -1;
  const auto size = static_cast<uint32_t>(piece.size());
  std::vector<int32_t> part(size);
  std::vector<uint32_t> previous(size);
  std::vector<uint32_t> next(size);
  std::map<int32_t, Bucket> buckets;
  const auto add_pair = [&](uint32_t i) {
    if (next[i] == size) return INT32_MAX;
    const PairSlot* slot = FindPair(part[i], part[next[i]]);
    if (slot == nullptr) return INT32_MAX;
    buckets[slot->rank].Push(i);
    return slot->rank;
  };
  for (uint32_t i = 0; i < size; ++i) {
    part[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    previous[i] = i - 1;  // unused for the first
    next[i] = i + 1;
  }
  for (uint32_t i = 0; i < size; ++i) add_pair(i);

  while (!buckets.empty()) {
    const auto lowest = buckets.begin();
    const int32_t rank = lowest->first;
    Bucket& bucket = lowest->second;
    bucket.Sort();
    bool lower_appeared = false;
    while (bucket.next < bucket.positions.size() && !lower_appeared) {
      const uint32_t i = bucket.positions[bucket.next++];
      // Merges since may have taken either part.
      if (part[i] == kMergedAway || next[i] == size) continue;
      const uint32_t right = next[i];
      const PairSlot* slot = FindPair(part[i], part[right]);
      if (slot == nullptr || slot->rank != rank) continue;
      part[i] = slot->merged;
      part[right] = kMergedAway;
      next[i] = next[right];
      if (next[i] != size) previous[next[i]] = i;
      lower_appeared = add_pair(i) < rank;
      if (i > 0) lower_appeared = add_pair(previous[i]) < rank || lower_appeared;
    }
    if (bucket.next == bucket.positions.size()) buckets.erase(lowest);
  }
  for (uint32_t i = 0; i < size; i = next[i]) ids.push_back(part[i]);
}

}  // namespace ulmus::tokenizer
