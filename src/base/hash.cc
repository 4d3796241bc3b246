#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#define XXH_STATIC_LINKING_ONLY  // size of the streaming state
#include <xxhash.h>

#include "base/check.h"

namespace ulmus {

std::string ToHex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (std::byte byte : bytes) {
    hex += kDigits[std::to_integer<size_t>(byte >> 4)];
    hex += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return hex;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
        "OpenSSL offers no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256 of {} bytes",
        bytes.size());
}

Sha256::Digest Sha256::digest() const {
  State copy;  // finalising ends a context
  CHECK(EVP_MD_CTX_copy_ex(copy.context, state_->context) == 1, "SHA-256 state cannot be copied");
  Digest digest;
  CHECK(EVP_DigestFinal_ex(copy.context, reinterpret_cast<unsigned char*>(digest.data()),
                           nullptr) == 1,
        "SHA-256 cannot be finished");
  return digest;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.hex();
}

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {.low = hash.low64, .high = hash.high64};
}

// One streaming state serves both widths: they differ only in how it is finished.
struct Xxh3Stream::State {
  XXH3_state_t xxh;
};

Xxh3Stream::Xxh3Stream(uint64_t seed) : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset_withSeed(&state_->xxh, seed);
}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(&state_->xxh); }

Hash128 Xxh3Stream::wide_digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {.low = hash.low64, .high = hash.high64};
}

void RollingHash::Add(uint64_t id) {
  // Murmur3's finaliser over both the state and the id: a swap of neighbours or a zero id changes
  // the value.
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
  };
  value_ = mix(value_ * 3 + mix(id + 0x9e3779b97f4a7c15ull) + 1);
}

}  // namespace ulmus
