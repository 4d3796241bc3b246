// Compiled programs kept on disk, so that a restart does not compile again. A damaged, foreign or
// outdated entry is reported, deleted and rebuilt, never trusted; a cache that cannot be written
// costs a warning, nothing else. Format: docs/formats/executable_cache.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"

namespace ulmus::pjrt {

struct CacheOptions {
  std::string directory;                 // empty: DefaultCacheDirectory()
  int64_t max_bytes = int64_t{4} << 30;  // of all entries; the least recently used go first
  // Receives one line per event worth telling; default: the log (base/log.h). Called from the
  // thread that uses the cache.
  std::function<void(std::string_view)> log;
};

// $XDG_CACHE_HOME/ulmus/executables, else ~/.cache/ulmus/executables, else "" (no cache).
std::string DefaultCacheDirectory();

// Everything that decides what a compiler makes of a program. Equal keys promise interchangeable
// executables.
struct CacheKeyParts {
  std::string plugin_hash;  // sha256 of the plugin file
  int api_major = 0, api_minor = 0;
  std::string machine;                             // CpuDescription()
  std::string platform_version;                    // as the client reports it
  std::string compile_options;                     // serialized
  std::map<std::string, std::string> environment;  // the variables that plugins read
  std::map<std::string, int64_t> custom_calls;     // target -> version of its handler
  std::string program;                             // text
};
// 64 hexadecimal digits (sha256).
std::string CacheKey(const CacheKeyParts& parts);

// Model and feature flags of this machine's CPU: code compiled here need not run elsewhere.
std::string CpuDescription();
// The variables of this process that change what a plugin compiles: XLA_FLAGS, LIBTPU_INIT_ARGS,
// PJRT_NPROC, NPROC.
std::map<std::string, std::string> CompilerEnvironment();

// Any thread, and any number of processes, may use one directory.
class CompilationCache {
 public:
  explicit CompilationCache(CacheOptions options = {});

  const std::string& directory() const { return options_.directory; }
  // The payload stored under `key`, or nothing.
  std::optional<std::string> Load(const std::string& key);
  // Writes to a temporary file and renames it; then evicts. Failures are logged.
  void Store(const std::string& key, std::string_view payload);
  // Deletes an entry that is intact but that the plugin refuses.
  void Reject(const std::string& key, std::string_view reason);
  // Says why the program called `name` is compiled without the cache.
  void Bypass(std::string_view name, std::string_view reason) const;
  // sha256 of a plugin file in hexadecimal. Hashing 200 MB takes longer than loading a program, so
  // the result is kept in the directory under path, size and times.
  Result<std::string> PluginHash(const std::string& path);

 private:
  std::string EntryPath(const std::string& key) const;
  void Evict();
  void Log(std::string_view line, LogLevel level = LogLevel::kWarning) const;

  CacheOptions options_;
};

}  // namespace ulmus::pjrt
