// Byte-pair merging: one piece of text to token ids. Always the pair of lowest rank, the leftmost
// of equals (Sennrich et al. 2016, Algorithm 1).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/definition.h"

namespace ulmus::tokenizer {

class Bpe {
 public:
  explicit Bpe(const Definition& definition);

  // Pieces met lately with their ids; one thread at a time.
  class Cache {
   public:
    Cache() : entries_(kNumEntries) {}

   private:
    friend class Bpe;
    static constexpr size_t kNumEntries = size_t{1} << 13;
    static constexpr size_t kMaxIds = 10;
    struct alignas(64) Entry {  // one cache line
      uint64_t low = 0;
      uint64_t high = 0;
      uint32_t num_bytes = 0;  // 0: free
      uint32_t num_ids = 0;
      std::array<int32_t, kMaxIds> ids{};
    };
    std::vector<Entry> entries_;
  };

  // Appends the ids of the piece text[start, end).
  void Encode(std::string_view text, size_t start, size_t end, Cache& cache,
              std::vector<int32_t>& ids) const;

  // The rules themselves, without the tables of whole pieces. O(n log n) time, 30 bytes of memory
  // per byte of a long piece.
  void MergePairs(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  // Up to 16 bytes of a piece as two numbers, zero-padded.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    uint64_t Hash(uint32_t num_bytes) const;
  };
  struct PairSlot {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = -1;
    int32_t merged = -1;
  };
  struct WholeSlot {
    uint64_t low = 0;
    uint64_t high = 0;
    uint32_t num_bytes = 0;
    int32_t id = -1;
  };
  static constexpr size_t kMaxKeyBytes = 16;

  static Key KeyOf(std::string_view text, size_t start, size_t num_bytes);
  void AddPair(const Merge& merge, int32_t rank);
  void AddWhole(const VocabToken& token);
  const PairSlot* FindPair(int32_t left, int32_t right) const;
  int32_t FindWhole(const Key& key, uint32_t num_bytes, uint64_t hash) const;
  void MergeShort(std::string_view piece, std::vector<int32_t>& ids) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<PairSlot> pairs_;    // open addressing, half empty
  std::vector<WholeSlot> wholes_;  // tokens of up to 16 bytes that a piece equal to them becomes
  std::vector<VocabToken> long_wholes_;  // longer ones, by bytes; only under ignore_merges
};

}  // namespace ulmus::tokenizer
