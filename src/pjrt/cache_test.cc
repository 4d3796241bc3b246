#include "pjrt/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "pjrt/cache_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kKey(64, 'b');
const std::string kOtherKey(64, 'c');

class CacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = testing::TempDir() + "ulmus_cache_" + test->name();
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  CompilationCache Make(int64_t max_bytes = 1 << 20) {
    return CompilationCache({.directory = directory_,
                             .max_bytes = max_bytes,
                             .log = [this](std::string_view line) { log_.emplace_back(line); }});
  }
  std::string Path(const std::string& key) const { return directory_ + "/" + key + ".executable"; }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Write(const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string directory_;
  std::vector<std::string> log_;
};

TEST_F(CacheTest, ReturnsWhatWasStored) {
  CompilationCache cache = Make();
  EXPECT_EQ(cache.Load(kKey), std::nullopt);
  cache.Store(kKey, "payload");
  EXPECT_EQ(cache.Load(kKey), "payload");
  EXPECT_EQ(cache.Load(kOtherKey), std::nullopt);
  cache.Store(kKey, "");
  EXPECT_EQ(cache.Load(kKey), "");
  EXPECT_TRUE(log_.empty());
}

TEST_F(CacheTest, EveryDamagedEntryIsReportedDeletedAndNotUsed) {
  CompilationCache cache = Make();
  cache.Store(kKey, "some payload");
  const std::string good = Read(Path(kKey));
  std::string version = good;
  version[8] = 2;
  std::string flipped = good;
  flipped.back() ^= 1;
  struct Case {
    std::string bytes;
    const char* reason;
  };
  const Case cases[] = {
      {good.substr(0, 10), "shorter than the header"},
      {good.substr(0, good.size() - 1), "payload of 11 bytes, the header says 12"},
      {good + "x", "payload of 13 bytes, the header says 12"},
      {flipped, "checksum"},
      {version, "format version 2, expected 1"},
      {EncodeCacheEntry(kOtherKey, "some payload"), "belongs to another key"},
      {std::string(100, 'z'), "not a cache entry"},
      {"", "0 bytes"},
      {std::string((2 << 20), 'z'), "more than the limit"},
  };
  for (const Case& c : cases) {
    log_.clear();
    Write(Path(kKey), c.bytes);
    EXPECT_EQ(cache.Load(kKey), std::nullopt) << c.reason;
    EXPECT_FALSE(fs::exists(Path(kKey))) << c.reason;
    ASSERT_EQ(log_.size(), 1u) << c.reason;
    EXPECT_THAT(log_[0], HasSubstr(c.reason));
    EXPECT_THAT(log_[0], HasSubstr(Path(kKey)));
  }
}

TEST_F(CacheTest, APipeUnderTheNameOfAnEntryDoesNotBlock) {
  CompilationCache cache = Make();
  cache.Store(kKey, "payload");
  ASSERT_TRUE(fs::remove(Path(kKey)));
  ASSERT_EQ(mkfifo(Path(kKey).c_str(), 0600), 0);
  EXPECT_EQ(cache.Load(kKey), std::nullopt);
}

TEST(CacheEntry, NoTruncationAndNoBitFlipIsAccepted) {
  const std::string good = EncodeCacheEntry(kKey, "payload of an executable");
  ASSERT_TRUE(DecodeCacheEntry(kKey, good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeCacheEntry(kKey, std::string_view(good).substr(0, size)).ok()) << size;
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const auto payload = DecodeCacheEntry(kKey, bad);
    ASSERT_FALSE(payload.ok()) << bit;
    EXPECT_EQ(payload.error().code(), StatusCode::kDataLoss);
  }
}

TEST(CacheEntry, FuzzTargetHoldsOnDamagedEntries) {
  const auto run = [](const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  const std::string entry = EncodeCacheEntry(std::string(64, 'a'), "payload of an executable");
  for (int mode = 0; mode < 256; ++mode) run(static_cast<char>(mode) + entry);
  for (size_t size = 0; size <= entry.size(); ++size) run('\0' + entry.substr(0, size));
  for (size_t bit = 0; bit < 8 * entry.size(); ++bit) {
    std::string bad = '\0' + entry;
    bad[1 + bit / 8] = static_cast<char>(bad[1 + bit / 8] ^ (1 << (bit % 8)));
    run(bad);
  }
}

TEST_F(CacheTest, LeastRecentlyUsedEntriesGoFirst) {
  CompilationCache cache = Make(1000);
  const std::string payload(300, 'p');  // 364 bytes with the header: two fit
  const std::string keys[] = {std::string(64, '1'), std::string(64, '2'), std::string(64, '3')};
  cache.Store(keys[0], payload);
  cache.Store(keys[1], payload);
  const auto hours_ago = [](int h) {
    return fs::file_time_type::clock::now() - std::chrono::hours(h);
  };
  fs::last_write_time(Path(keys[0]), hours_ago(3));
  fs::last_write_time(Path(keys[1]), hours_ago(2));
  EXPECT_TRUE(cache.Load(keys[0]).has_value());  // used now: 1 is the older one
  Write(directory_ + "/left.over.tmp", "x");
  fs::last_write_time(directory_ + "/left.over.tmp", hours_ago(2));
  Write(directory_ + "/young.tmp", "x");
  cache.Store(keys[2], payload);
  EXPECT_TRUE(fs::exists(Path(keys[0])));
  EXPECT_FALSE(fs::exists(Path(keys[1])));
  EXPECT_TRUE(fs::exists(Path(keys[2])));
  EXPECT_FALSE(fs::exists(directory_ + "/left.over.tmp"));
  EXPECT_TRUE(fs::exists(directory_ + "/young.tmp"));
}

TEST_F(CacheTest, AnEntryAboveTheLimitIsNotStored) {
  CompilationCache cache = Make(100);
  cache.Store(kKey, std::string(101, 'p'));
  EXPECT_FALSE(fs::exists(Path(kKey)));
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("larger than the cache's limit"));
}

TEST_F(CacheTest, ADirectoryThatCannotBeWrittenOnlyWarns) {
  Write(directory_, "a file where the directory should be");
  CompilationCache cache = Make();
  EXPECT_EQ(cache.Load(kKey), std::nullopt);
  log_.clear();
  cache.Store(kKey, "payload");
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("not stored"));
}

TEST_F(CacheTest, AFullDiskOnlyWarnsAndLeavesNoPieces) {
  CompilationCache cache = Make();
  // The file-size limit stands in for a full disk: write fails half way with EFBIG.
  fs::create_directories(directory_);
  const auto store_with_little_space = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    cache.Store(kKey, std::string(100'000, 'p'));
    const bool warned = log_.size() == 1 && log_[0].find("cannot be written") != std::string::npos;
    std::_Exit(warned && fs::is_empty(directory_) ? 0 : 1);
  };
  EXPECT_EXIT(store_with_little_space(), testing::ExitedWithCode(0), "");
}

TEST_F(CacheTest, PluginHashIsKeptUntilTheFileChanges) {
  CompilationCache cache = Make();
  const std::string plugin = testing::TempDir() + "hashed_plugin.so";
  Write(plugin, "abc");
  const std::string abc =
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-2, example 1
  EXPECT_EQ(*cache.PluginHash(plugin), abc);
  ASSERT_EQ(std::distance(fs::directory_iterator(directory_ + "/plugins"), {}), 1);
  const std::string record = fs::directory_iterator(directory_ + "/plugins")->path();
  EXPECT_EQ(*cache.PluginHash(plugin), abc);
  // Damaged record: computed again.
  Write(record, "nonsense");
  EXPECT_EQ(*cache.PluginHash(plugin), abc);
  // A kept record is used: it is all that says so.
  std::string forged = Read(record);
  forged.replace(forged.size() - 64, 64, std::string(64, '0'));
  Write(record, forged);
  EXPECT_EQ(*cache.PluginHash(plugin), std::string(64, '0'));
  // Same size and modification time, other contents: the change time tells.
  const auto time = fs::last_write_time(plugin);
  usleep(20'000);
  Write(plugin, "abd");
  fs::last_write_time(plugin, time);
  EXPECT_NE(*cache.PluginHash(plugin), std::string(64, '0'));
  EXPECT_EQ(cache.PluginHash("/nowhere").status().code(), StatusCode::kNotFound);
  fs::remove(plugin);
}

TEST(CacheKey, EveryPartCounts) {
  const CacheKeyParts base{.plugin_hash = "hash",
                           .api_major = 0,
                           .api_minor = 81,
                           .machine = "cpu",
                           .platform_version = "v",
                           .compile_options = "options",
                           .environment = {{"XLA_FLAGS", "a"}},
                           .custom_calls = {{"target", 1}},
                           .program = "module"};
  std::vector<CacheKeyParts> variants(11, base);
  variants[0].plugin_hash = "other";
  variants[1].api_major = 1;
  variants[2].api_minor = 82;
  variants[3].machine = "gpu";
  variants[4].platform_version = "w";
  variants[5].compile_options = "other";
  variants[6].environment["XLA_FLAGS"] = "b";
  variants[7].environment.clear();
  variants[8].custom_calls["target"] = 2;
  variants[9].program = "module2";
  variants[10].compile_options = "optionsmodule";  // fields must not run together
  variants[10].program = "";
  std::vector<std::string> keys = {CacheKey(base)};
  EXPECT_EQ(CacheKey(base), keys[0]);
  EXPECT_EQ(keys[0].size(), 64u);
  for (const auto& v : variants) keys.push_back(CacheKey(v));
  std::ranges::sort(keys);
  EXPECT_EQ(std::ranges::adjacent_find(keys), keys.end());
}

// The worked example of docs/formats/executable_cache.md.
TEST(CacheEntry, IsWhatTheDocumentationShows) {
  const CacheKeyParts parts{.plugin_hash = "h",
                            .api_major = 0,
                            .api_minor = 81,
                            .machine = "m",
                            .platform_version = "v",
                            .compile_options = "o",
                            .environment = {{"NPROC", "2"}},
                            .custom_calls = {},
                            .program = "p"};
  const std::string key = CacheKey(parts);
  EXPECT_EQ(key, "0fd4b06ce51222910275df705c845a510d586e3333faf1ed2c965b66bb217f0f");
  std::string hex;
  for (const char c : EncodeCacheEntry(key, "xla"))
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex, "554c4d55534558450100000000000000" + key + "030000000000000066dd685676bf15d8" +
                     "786c61");
}

TEST(CacheKey, MachineAndEnvironmentAreDescribed) {
  EXPECT_FALSE(CpuDescription().empty());
  setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false", 1);
  EXPECT_EQ(CompilerEnvironment().at("XLA_FLAGS"), "--xla_cpu_enable_fast_math=false");
  unsetenv("XLA_FLAGS");
  EXPECT_FALSE(CompilerEnvironment().contains("XLA_FLAGS"));
}

TEST(DefaultCacheDirectory, FollowsXdgThenHome) {
  const char* home = std::getenv("HOME");
  const std::string saved = home == nullptr ? "" : home;
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(DefaultCacheDirectory(), "/x/ulmus/executables");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/h", 1);
  EXPECT_EQ(DefaultCacheDirectory(), "/h/.cache/ulmus/executables");
  setenv("HOME", saved.c_str(), 1);
}

}  // namespace
}  // namespace ulmus::pjrt
