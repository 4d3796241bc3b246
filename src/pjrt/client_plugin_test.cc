#include "pjrt/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "pjrt/cache_entry.h"
#include "pjrt/run.h"
#include "pjrt/test_programs.h"

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ClientTest : public EachCpuPlugin {};
INSTANTIATE_TEST_SUITE_P(Plugins, ClientTest, testing::ValuesIn(KnownCpuPlugins()), PluginTestName);

HostTensor Filled(Shape shape, double step) {
  HostTensor t(TensorType{DType::kF32, std::move(shape)});
  for (int64_t i = 0; i < t.num_elements(); ++i) t.Set(i, static_cast<double>(i) * step);
  return t;
}

std::vector<HostTensor> MatmulArgs() {
  std::vector<HostTensor> args;
  args.push_back(Filled({8, 6}, 1));
  args.push_back(Filled({6, 4}, 0.5));
  return args;
}

TEST_P(ClientTest, HasTheDevicesAskedForInOrder) {
  const Client& client = SharedClientOrDie(8);
  EXPECT_EQ(client.platform(), "cpu");
  EXPECT_EQ(client.plugin().kind(), "cpu");
  EXPECT_FALSE(client.platform_version().empty());
  EXPECT_FALSE(client.plugin().attributes().at("stablehlo_current_version").empty());
  ASSERT_EQ(client.num_devices(), 8);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(client.devices()[static_cast<size_t>(i)].id, i);
  EXPECT_EQ(SharedClientOrDie(1).num_devices(), 1);
}

TEST_P(ClientTest, TooFewDevicesIsAnErrorWithBothNumbers) {
  const auto plugin = Plugin::Load(GetParam().path);
  ASSERT_TRUE(plugin.ok()) << plugin.status().ToString();
  const auto client =
      Client::Create(*plugin, {.num_devices = 8, .options = {{"cpu_device_count", int64_t{2}}}});
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(client.error().message(),
              AllOf(HasSubstr("found 2 devices, wanted 8"), HasSubstr("smaller mesh")));

  const auto executable = SharedClientOrDie(1).Compile(ShardedMatmul());
  EXPECT_EQ(executable.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(executable.status().message(),
              HasSubstr("(data=4 tensor=2) needs 8 devices, the client has 1"));
}

TEST_P(ClientTest, RejectedOptionsAndTextsAreInvalidArguments) {
  Client& client = SharedClientOrDie(1);
  CompileOptions unknown;
  unknown.overrides["no_such_option"] = true;
  EXPECT_EQ(client.Compile(MultiplyAdd(), unknown).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(client.Compile(MultiplyAdd(), unknown).status().message(),
              HasSubstr("no_such_option"));
  CompileOptions bad_value;
  bad_value.overrides["xla_cpu_enable_fast_math"] = std::string("hello");
  EXPECT_EQ(client.Compile(MultiplyAdd(), bad_value).status().code(), StatusCode::kInvalidArgument);
  Program broken = MultiplyAdd();
  broken.text = "module @m {\n  nonsense\n}";
  const auto parse = client.Compile(broken);
  EXPECT_EQ(parse.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(parse.status().message(), AllOf(HasSubstr("compiling multiply_add: -:2:3: error"),
                                              Not(HasSubstr("StableHLO v"))));
}

TEST_P(ClientTest, ResultsThatDifferFromTheDescriptionAreFoundAtCompileTime) {
  Client& client = SharedClientOrDie(8);
  const auto message = [&](auto change) {
    Program program = ShardedMatmul();
    change(program);
    const Status status = client.Compile(program).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(message([](Program& p) { p.results.pop_back(); }),
              HasSubstr("returns 2 results, Program::results lists 1"));
  EXPECT_THAT(
      message([](Program& p) { p.results[0].type.dtype = DType::kBF16; }),
      HasSubstr("result 0 'y': compiled to f32[2,2] per device, Program::results says bf16[8,4]"));
  EXPECT_THAT(message([](Program& p) { p.results[0].sharding = {{{"data"}, {}}}; }),
              HasSubstr("which is f32[2,4] per device"));
  EXPECT_THAT(message([](Program& p) { p.results[1].type.shape = {16}; }),
              HasSubstr("result 1 'row_sums'"));
}

TEST_P(ClientTest, PartitionsMayRunOnOtherDevices) {
  Client& client = SharedClientOrDie(8);
  CompileOptions options;
  options.devices = {7, 6, 5, 4, 3, 2, 1, 0};
  const auto straight = RunOnce(client, ShardedMatmul(), MatmulArgs());
  const auto reversed = RunOnce(client, ShardedMatmul(), MatmulArgs(), options);
  ASSERT_TRUE(straight.ok() && reversed.ok()) << reversed.status().ToString();
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(straight->front().Get(i), reversed->front().Get(i));

  const auto executable = client.Compile(ShardedMatmul(), options);
  auto x = ShardedArray::FromHost(client, MatmulArgs()[0], ShardedMatmul().mesh, {{{"data"}, {}}});
  auto w = ShardedArray::FromHost(client, MatmulArgs()[1], (*executable)->argument_layout(1));
  ShardedArray* const args[] = {&*x, &*w};
  EXPECT_THAT((*executable)->Execute(args).status().message(),
              HasSubstr("argument 0 'x'"));  // right shards, wrong devices

  options.devices = {0, 0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(client.Compile(ShardedMatmul(), options).status().code(), StatusCode::kInvalidArgument);
  options.devices = {0, 1};
  EXPECT_EQ(client.Compile(ShardedMatmul(), options).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(ClientTest, OptimizedTextShowsTheCollectives) {
  const auto text = DumpOptimizedHlo(SharedClientOrDie(8), ShardedMatmul());
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_THAT(*text, AllOf(HasSubstr("ENTRY"), HasSubstr("all-gather")));  // row_sums is replicated
}

TEST_P(ClientTest, CompiledProgramsTellMemoryCostAndFingerprint) {
  Client& client = SharedClientOrDie(1);
  const auto executable = client.Compile(MultiplyAdd());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const MemoryStats stats = (*executable)->memory_stats();
  EXPECT_EQ(stats.argument_bytes, 48);
  EXPECT_EQ(stats.output_bytes, 16);
  EXPECT_EQ(stats.TotalBytes(), 64 + stats.temp_bytes);
  const CompiledProgram& compiled = (*executable)->compiled();
  const auto cost = compiled.ComputeCost();
  if (cost.ok()) {
    EXPECT_EQ(cost->at("flops"), 2 * 2 * 2 * 2 + 4);
  } else {
    EXPECT_EQ(cost.error().code(), StatusCode::kUnimplemented);
  }
  const auto fingerprint = compiled.ComputeFingerprint();
  ASSERT_TRUE(fingerprint.ok()) << fingerprint.status().ToString();
  EXPECT_FALSE(fingerprint->empty());
  const auto again = client.Compile(MultiplyAdd());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*fingerprint, *(*again)->compiled().ComputeFingerprint());
  const auto optimized = compiled.ComputeOptimizedProgram();
  ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
  EXPECT_EQ(optimized->format, "hlo_with_config");
}

class CachedCompileTest : public ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    directory_ = testing::TempDir() + "ulmus_compile_cache_" + GetParam().name;
    fs::remove_all(directory_);
  }
  void TearDown() override {
    if (!directory_.empty()) fs::remove_all(directory_);
  }
  CompilationCache MakeCache() {
    return CompilationCache({.directory = directory_,
                             .log = [this](std::string_view line) { log_.emplace_back(line); }});
  }
  std::vector<fs::path> Entries() const {
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      if (entry.path().extension() == ".executable") entries.push_back(entry.path());
    }
    return entries;
  }

  std::string directory_;
  std::vector<std::string> log_;
};
INSTANTIATE_TEST_SUITE_P(Plugins, CachedCompileTest, testing::ValuesIn(KnownCpuPlugins()),
                         PluginTestName);

TEST_P(CachedCompileTest, SecondCompileLoadsAndGivesTheSameBits) {
  Client& client = SharedClientOrDie(1);
  CompilationCache cache = MakeCache();
  std::vector<std::vector<float>> outputs;
  for (const bool from_cache : {false, true}) {
    const auto executable = client.Compile(MultiplyAdd(), {}, &cache);
    ASSERT_TRUE(executable.ok()) << executable.status().ToString();
    EXPECT_EQ((*executable)->from_cache(), from_cache);
    EXPECT_GT((*executable)->compile_s(), 0);
    EXPECT_GT((*executable)->memory_stats().argument_bytes, 0);
    const HostTensor value = Filled({2, 2}, 0.1);
    auto array = ShardedArray::FromHost(client, value, (*executable)->argument_layout(0));
    ShardedArray* const pointers[] = {&*array, &*array, &*array};
    const auto results = (*executable)->Execute(pointers);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    outputs.push_back(ValuesOf(*results->front().ToHost()));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  CompileOptions options;
  options.overrides["xla_cpu_enable_fast_math"] = true;
  EXPECT_FALSE((*client.Compile(MultiplyAdd(), options, &cache))
                   ->from_cache());  // other options: another entry
  EXPECT_EQ(Entries().size(), 2u);
  EXPECT_TRUE(log_.empty());
}

TEST_P(CachedCompileTest, ProgramsForSeveralDevicesAreCachedOnlyWhereLoadingThemIsSafe) {
  Client& client = SharedClientOrDie(8);
  const bool safe = client.plugin().loads_collectives_in_order();
  EXPECT_EQ(safe, GetParam().name == "fastatomstruct-xla-cpu");
  CompilationCache cache = MakeCache();
  for (const bool second : {false, true}) {
    log_.clear();
    const auto executable = client.Compile(ShardedMatmul(), {}, &cache);
    ASSERT_TRUE(executable.ok()) << executable.status().ToString();
    EXPECT_EQ((*executable)->from_cache(), safe && second);
    if (safe) {
      EXPECT_TRUE(log_.empty());
      EXPECT_EQ(Entries().size(), 1u);
    } else {
      ASSERT_EQ(log_.size(), 1u);
      EXPECT_THAT(log_[0], AllOf(HasSubstr("not used for sharded_matmul"),
                                 HasSubstr("may deadlock"), HasSubstr("8 devices")));
      EXPECT_FALSE(fs::exists(directory_));
    }
  }
}

// Small whole numbers: every product and sum is exact.
HostTensor SmallIntegers(int seed) {
  HostTensor t(TensorType{DType::kF32, {64, 64}});
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.Set(i, static_cast<double>((i * 7 + i / 64 + seed) % 3 - 1));
  return t;
}

std::vector<double> Product(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> c(64 * 64);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t k = 0; k < 64; ++k) {
      for (size_t j = 0; j < 64; ++j) c[i * 64 + j] += a[i * 64 + k] * b[k * 64 + j];
    }
  }
  return c;
}

// Compiles IndependentCollectives twice with the cache and runs the second many times. Ends the
// process: 0 if all is well.
void RunCachedCollectives(Client& client, CompilationCache& cache) {
  constexpr int kRuns = 300;
  constexpr unsigned kWatchdogSeconds = 120;
  alarm(kWatchdogSeconds);  // a deadlock ends this process by SIGALRM
  const auto first = client.Compile(IndependentCollectives(), {}, &cache);
  const auto executable = client.Compile(IndependentCollectives(), {}, &cache);
  CHECK(executable.ok(), "{}", executable.status().ToString());
  CHECK((*executable)->from_cache() == client.plugin().loads_collectives_in_order(),
        "from the cache: {}", (*executable)->from_cache());

  std::vector<ShardedArray> arrays;
  std::vector<std::vector<double>> values;
  for (int i = 0; i < 3 * kNumChains; ++i) {
    const HostTensor tensor = SmallIntegers(i);
    auto array = ShardedArray::FromHost(client, tensor, (*executable)->argument_layout(i));
    CHECK(array.ok(), "{}", array.status().ToString());
    arrays.push_back(std::move(*array));
    auto& doubles = values.emplace_back();
    for (int64_t k = 0; k < tensor.num_elements(); ++k) doubles.push_back(tensor.Get(k));
  }
  std::vector<double> want(64 * 64);
  for (size_t i = 0; i < kNumChains; ++i) {
    const auto term = Product(Product(values[3 * i], values[3 * i + 1]), values[3 * i + 2]);
    for (size_t k = 0; k < want.size(); ++k) want[k] += term[k];
  }
  std::vector<ShardedArray*> args;
  for (ShardedArray& array : arrays) args.push_back(&array);
  std::vector<ShardedArray> results;
  for (int run = 0; run < kRuns; ++run) {
    auto started = (*executable)->Execute(args);
    CHECK(started.ok(), "{}", started.status().ToString());
    results = std::move(*started);
  }
  const auto sum = results.front().ToHost();
  CHECK(sum.ok(), "{}", sum.status().ToString());
  for (size_t k = 0; k < want.size(); ++k) {
    CHECK(sum->Get(static_cast<int64_t>(k)) == want[k], "element {}: {}, want {}", k,
          sum->Get(static_cast<int64_t>(k)), want[k]);
  }
  std::_Exit(0);
}

// In a process of its own, so that a deadlock fails the test instead of stopping all others.
TEST_P(CachedCompileTest, IndependentCollectivesNeverDeadlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CompilationCache cache = MakeCache();
  EXPECT_EXIT(RunCachedCollectives(SharedClientOrDie(8), cache), testing::ExitedWithCode(0), "");
}

TEST(IndependentCollectivesProgram, HasSeveralCollectivesThatCouldRunInAnyOrder) {
  const auto client = SharedDefaultClient(8);
  if (!client.ok()) GTEST_SKIP() << client.status().ToString();
  const auto text = DumpOptimizedHlo(**client, IndependentCollectives());
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const auto count = [&](const std::string& op) {
    int found = 0;
    for (size_t at = text->find(op); at != std::string::npos; at = text->find(op, at + 1)) ++found;
    return found;
  };
  EXPECT_GE(count(" all-reduce("), 2) << *text;  // the compiler joins those over the same axis
  EXPECT_EQ(count(" all-gather("), kNumChains) << *text;
}

TEST_P(CachedCompileTest, DamagedAndUnloadableEntriesAreRebuilt) {
  Client& client = SharedClientOrDie(1);
  CompilationCache cache = MakeCache();
  ASSERT_TRUE(client.Compile(MultiplyAdd(), {}, &cache).ok());
  ASSERT_EQ(Entries().size(), 1u);
  const fs::path entry = Entries()[0];
  const std::string key = entry.stem();
  const std::string damages[] = {"short", EncodeCacheEntry(key, "intact, but no executable"),
                                 EncodeCacheEntry(key, "")};
  for (const std::string& damage : damages) {
    log_.clear();
    std::ofstream(entry, std::ios::binary | std::ios::trunc) << damage;
    const auto rebuilt = client.Compile(MultiplyAdd(), {}, &cache);
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status().ToString();
    EXPECT_FALSE((*rebuilt)->from_cache());
    EXPECT_EQ(log_.size(), 1u);
    EXPECT_TRUE((*client.Compile(MultiplyAdd(), {}, &cache))->from_cache());
  }
}

}  // namespace
}  // namespace ulmus::pjrt
