#include "checkpoint/manifest.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"

namespace ulmus::checkpoint {
namespace {

constexpr std::string_view kFormat = "ulmus checkpoint";
constexpr int kVersion = 1;
constexpr int64_t kPieceBytes = int64_t{1} << 20;

std::string ManifestBody(const Manifest& manifest) {
  std::string text = fmt::format("{{\"format\":\"{}\",\"version\":{},\"step\":{},\"files\":{{\n",
                                 kFormat, kVersion, manifest.step);
  const char* comma = "";
  for (const auto& [key, file] : manifest.files) {
    text += fmt::format("{}{}:[{},\"{}\"]", comma, JsonText(key), file.size_bytes, file.hash.hex());
    comma = ",\n";
  }
  return text + "\n},\n";
}

Result<Hash128> ParseHash(const Json& value) {
  Hash128 hash;
  const std::string digits = value.is_string() ? value.get<std::string>() : "";
  const auto part = [&](size_t at, uint64_t& half) {
    return std::from_chars(digits.data() + at, digits.data() + at + 16, half, 16).ptr ==
           digits.data() + at + 16;
  };
  if (digits.size() != 32 || !part(0, hash.high) || !part(16, hash.low))
    return DataLossError("checksum {}, expected 32 hexadecimal digits", JsonExcerpt(value));
  return hash;
}

Result<Manifest> ManifestOf(const Json& root) {
  if (!root.is_object() || root.value("format", Json()) != kFormat)
    return DataLossError("not the manifest of a checkpoint: no \"format\":\"{}\"", kFormat);
  if (const Json version = root.value("version", Json()); version != kVersion)
    return DataLossError("version {}; this program reads version {}, update it",
                         JsonExcerpt(version), kVersion);
  Manifest manifest;
  const Json step = root.value("step", Json());
  const Json files = root.value("files", Json());
  if (!step.is_number_unsigned() || !files.is_object())
    return DataLossError("step or files are missing");
  manifest.step = step.get<int64_t>();
  for (const auto& [key, entry] : files.items()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_unsigned())
      return DataLossError("file {}: {}, expected [size, checksum]", key, JsonExcerpt(entry));
    manifest.files.emplace(
        key, ManifestFile{.size_bytes = entry[0].get<int64_t>(), .hash = TRY(ParseHash(entry[1]))});
  }
  return manifest;
}

}  // namespace

int64_t Manifest::total_bytes() const {
  int64_t total = 0;
  for (const auto& [key, file] : files) total += file.size_bytes;
  return total;
}

std::string ManifestText(const Manifest& manifest) {
  const std::string body = ManifestBody(manifest);
  return body + fmt::format("\"manifest_xxh3\":\"{}\"}}\n", Xxh3Wide(body).hex());
}

Result<Manifest> ParseManifest(std::string_view text) {
  Result<Json> root = ParseJson(text, {.max_bytes = kMaxManifestBytes});
  if (!root.ok()) return DataLossError("not JSON: {}", root.error().message());
  Manifest manifest = TRY(ManifestOf(*root));
  // Covers every byte: the checksum at the end is part of the text.
  if (ManifestText(manifest) != text)
    return DataLossError("its own checksum does not hold; the file was changed or damaged");
  return manifest;
}

Result<Manifest> LoadManifest(const ReadStore& store) {
  const std::string key(kManifestName);
  constexpr std::string_view kRemedy =
      "use another checkpoint, or copy this one again from where it is whole";
  const Result<std::string> text = store.ReadText(key, kMaxManifestBytes);
  if (!text.ok() && text.error().code() == StatusCode::kNotFound)
    return DataLossError("{}: missing, so this is no checkpoint or its save was not finished; {}",
                         store.Describe(key), kRemedy);
  if (!text.ok()) return text.error();
  Result<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok())
    return DataLossError("{}: {}; {}", store.Describe(key), manifest.error().message(), kRemedy);
  return manifest;
}

namespace {

// What is wrong with the content of one file; empty if nothing.
std::string CheckContent(const ReadStore& store, const std::string& key,
                         const ManifestFile& expected) {
  const Result<std::unique_ptr<ObjectReader>> object = store.Open(key);
  if (!object.ok()) return object.error().message();
  if ((*object)->size_bytes() != expected.size_bytes)
    return fmt::format("{} bytes, {} expected", (*object)->size_bytes(), expected.size_bytes);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, expected.size_bytes)));
  Xxh3Stream hash;
  for (int64_t at = 0; at < expected.size_bytes; at += kPieceBytes) {
    const std::span<std::byte> part = std::span(piece).first(
        static_cast<size_t>(std::min(kPieceBytes, expected.size_bytes - at)));
    if (const Status status = (*object)->Read(at, part); !status.ok()) return status.message();
    hash.Update(part);
  }
  return hash.wide_digest() == expected.hash ? "" : "checksum differs";
}

}  // namespace

Result<std::vector<Damage>> VerifyFiles(const ReadStore& store, const Manifest& manifest,
                                        const VerifyOptions& options) {
  const std::map<std::string, int64_t> found = TRY(store.List());
  std::vector<Damage> damaged;
  for (const auto& [key, size_bytes] : found) {
    if (key != kManifestName && !manifest.files.contains(key))
      damaged.push_back({key, "not in the manifest"});
  }
  std::vector<const std::pair<const std::string, ManifestFile>*> to_read;
  for (const auto& entry : manifest.files) {
    const auto it = found.find(entry.first);
    if (it == found.end()) {
      damaged.push_back({entry.first, "missing"});
    } else if (it->second != entry.second.size_bytes) {
      damaged.push_back(
          {entry.first, fmt::format("{} bytes, {} expected", it->second, entry.second.size_bytes)});
    } else if (options.full) {
      to_read.push_back(&entry);
    }
  }
  std::atomic<size_t> next = 0;
  int64_t total_bytes = 0;
  for (const auto* entry : to_read) total_bytes += entry->second.size_bytes;
  Progress progress("verify", total_bytes, {.unit = "bytes"});
  std::mutex mutex;  // guards damaged and progress
  {
    std::vector<std::jthread> threads;
    const size_t count = std::min(to_read.size(), static_cast<size_t>(options.threads));
    for (size_t t = 0; t < count; ++t) {
      threads.push_back(StartThread("verify", [&] {
        for (size_t i = next++; i < to_read.size(); i = next++) {
          std::string what = CheckContent(store, to_read[i]->first, to_read[i]->second);
          std::lock_guard lock(mutex);
          progress.Add(to_read[i]->second.size_bytes);
          if (!what.empty()) damaged.push_back({to_read[i]->first, std::move(what)});
        }
      }));
    }
  }
  std::ranges::sort(damaged, {}, &Damage::file);
  return damaged;
}

std::string DamageText(const std::vector<Damage>& damaged) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, damaged.size()); ++i)
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", damaged[i].file, damaged[i].what);
  if (damaged.size() > kShown) text += fmt::format(" and {} more", damaged.size() - kShown);
  return text;
}

}  // namespace ulmus::checkpoint
