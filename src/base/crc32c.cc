// CRC-32C: tables for any machine, the instruction of x86 where there is one (base/hash.h).
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ulmus {
namespace {

static_assert(std::endian::native == std::endian::little, "slice-by-8 reads little-endian words");

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bits reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: effect of byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 255];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

uint64_t LoadWord(const std::byte* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const uint64_t word = LoadWord(bytes.data()) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (std::byte byte : bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 255];
  return ~crc;
}

#if defined(__x86_64__)
bool HasCrc32cInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) uint32_t Crc32cHardware(std::span<const std::byte> bytes,
                                                          uint32_t crc) {
  CHECK(HasCrc32cInstruction(), "this machine has no SSE4.2");
  uint64_t state = static_cast<uint32_t>(~crc);
  for (; bytes.size() >= 8; bytes = bytes.subspan(8))
    state = _mm_crc32_u64(state, LoadWord(bytes.data()));
  auto state32 = static_cast<uint32_t>(state);
  for (std::byte byte : bytes) state32 = _mm_crc32_u8(state32, std::to_integer<uint8_t>(byte));
  return ~state32;
}
#else
bool HasCrc32cInstruction() { return false; }
uint32_t Crc32cHardware(std::span<const std::byte>, uint32_t) {
  CHECK(false, "no CRC-32C instruction on this architecture");
  return 0;
}
#endif

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  return HasCrc32cInstruction() ? Crc32cHardware(bytes, crc) : Crc32cPortable(bytes, crc);
}

}  // namespace ulmus
