// Digests and checksums. Sha256 where a published digest must match, Xxh3 for speed, Crc32c where a
// format asks for it (zarr chunks, TensorBoard records).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ulmus {

// The bytes of a text, for functions that take bytes.
inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// Lower-case hexadecimal, two digits a byte.
std::string ToHex(std::span<const std::byte> bytes);

// SHA-256, fed piece by piece.
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(AsBytes(text)); }
  // The digest of everything fed so far, which may go on after.
  Digest digest() const;
  std::string hex() const { return ToHex(digest()); }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(std::span<const std::byte> bytes);
inline std::string Sha256Hex(std::string_view text) { return Sha256Hex(AsBytes(text)); }

// XXH3, not for adversaries: same values as the reference library, any machine.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  std::string hex() const;  // canonical form of xxhsum: high half first
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t Xxh3(std::string_view text, uint64_t seed = 0) { return Xxh3(AsBytes(text), seed); }
Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed = 0);
inline Hash128 Xxh3Wide(std::string_view text, uint64_t seed = 0) {
  return Xxh3Wide(AsBytes(text), seed);
}

// XXH3 fed piece by piece; either digest can be read at any time.
class Xxh3Stream {
 public:
  explicit Xxh3Stream(uint64_t seed = 0);
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(AsBytes(text)); }
  uint64_t digest() const;
  Hash128 wide_digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// CRC-32C (Castagnoli, reflected, as in iSCSI, zarr and TensorBoard). `crc` continues from the
// value of the bytes before: Crc32c(b, Crc32c(a)) == Crc32c(a + b). Uses the SSE4.2 instruction
// where the machine has it.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
inline uint32_t Crc32c(std::string_view text, uint32_t crc = 0) {
  return Crc32c(AsBytes(text), crc);
}
// The rotated and offset CRC that TFRecord files store (TensorFlow core/lib/hash/crc32c.h, Mask).
inline uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

// The two implementations behind Crc32c, public so that tests and benchmarks compare them.
uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t crc);  // slice-by-8 tables
bool HasCrc32cInstruction();
uint32_t Crc32cHardware(std::span<const std::byte> bytes,
                        uint32_t crc);  // CHECKs HasCrc32cInstruction()

// Order-sensitive hash of a sequence of 64-bit ids, small enough to sit in every checkpoint: two
// runs that consumed the same instances in the same order have equal values. Not for adversaries.
class RollingHash {
 public:
  RollingHash() = default;
  explicit RollingHash(uint64_t value) : value_(value) {}  // goes on from a stored value()
  void Add(uint64_t id);
  void Add(std::span<const uint64_t> ids) {
    for (uint64_t id : ids) Add(id);
  }
  uint64_t value() const { return value_; }
  friend bool operator==(const RollingHash&, const RollingHash&) = default;

 private:
  uint64_t value_ = 0;
};

}  // namespace ulmus
