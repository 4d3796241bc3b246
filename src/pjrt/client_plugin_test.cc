#include "pjrt/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

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
  const auto client = Client::Create(*plugin, {.num_devices = 8, .options = {{"cpu_device_count", int64_t{2}}}});
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(client.error().message(), AllOf(HasSubstr("found 2 devices, wanted 8"), HasSubstr("smaller mesh")));

  const auto executable = SharedClientOrDie(1).Compile(ShardedMatmul());
  EXPECT_EQ(executable.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(executable.status().message(), HasSubstr("(data=4 tensor=2) needs 8 devices, the client has 1"));
}

TEST_P(ClientTest, RejectedOptionsAndTextsAreInvalidArguments) {
  Client& client = SharedClientOrDie(1);
  CompileOptions unknown;
  unknown.overrides["no_such_option"] = true;
  EXPECT_EQ(client.Compile(MultiplyAdd(), unknown).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(client.Compile(MultiplyAdd(), unknown).status().message(), HasSubstr("no_such_option"));
  CompileOptions bad_value;
  bad_value.overrides["xla_cpu_enable_fast_math"] = std::string("hello");
  EXPECT_EQ(client.Compile(MultiplyAdd(), bad_value).status().code(), StatusCode::kInvalidArgument);
  Program broken = MultiplyAdd();
  broken.text = "module @m {\n  nonsense\n}";
  const auto parse = client.Compile(broken);
  EXPECT_EQ(parse.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(parse.status().message(), AllOf(HasSubstr("compiling multiply_add: -:2:3: error"), Not(HasSubstr("StableHLO v"))));
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
  EXPECT_THAT(message([](Program& p) { p.results.pop_back(); }), HasSubstr("returns 2 results, Program::results lists 1"));
  EXPECT_THAT(message([](Program& p) { p.results[0].type.dtype = DType::kBF16; }),
              HasSubstr("result 0 'y': compiled to f32[2,2] per device, Program::results says bf16[8,4]"));
  EXPECT_THAT(message([](Program& p) { p.results[0].sharding = {{{"data"}, {}}}; }), HasSubstr("which is f32[2,4] per device"));
  EXPECT_THAT(message([](Program& p) { p.results[1].type.shape = {16}; }), HasSubstr("result 1 'row_sums'"));
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
  EXPECT_THAT((*executable)->Execute(args).status().message(), HasSubstr("argument 0 'x'"));  // right shards, wrong devices

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
    return CompilationCache({.directory = directory_, .log = [this](std::string_view line) { log_.emplace_back(line); }});
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
INSTANTIATE_TEST_SUITE_P(Plugins, CachedCompileTest, testing::ValuesIn(KnownCpuPlugins()), PluginTestName);

TEST_P(CachedCompileTest, SecondCompileLoadsAndGivesTheSameBits) {
  Client& client = SharedClientOrDie(8);
  CompilationCache cache = MakeCache();
  std::vector<std::vector<float>> outputs;
  for (const bool from_cache : {false, true}) {
    const auto executable = client.Compile(ShardedMatmul(), {}, &cache);
    ASSERT_TRUE(executable.ok()) << executable.status().ToString();
    EXPECT_EQ((*executable)->from_cache(), from_cache);
    EXPECT_GT((*executable)->compile_s(), 0);
    EXPECT_GT((*executable)->memory_stats().argument_bytes, 0);
    const auto args = MatmulArgs();
    auto x = ShardedArray::FromHost(client, args[0], (*executable)->argument_layout(0));
    auto w = ShardedArray::FromHost(client, args[1], (*executable)->argument_layout(1));
    ShardedArray* const pointers[] = {&*x, &*w};
    const auto results = (*executable)->Execute(pointers);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    outputs.push_back(ValuesOf(*results->front().ToHost()));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  CompileOptions options;
  options.overrides["xla_cpu_enable_fast_math"] = true;
  EXPECT_FALSE((*client.Compile(ShardedMatmul(), options, &cache))->from_cache());  // other options: another entry
  EXPECT_EQ(Entries().size(), 2u);
  EXPECT_TRUE(log_.empty());
}

TEST_P(CachedCompileTest, DamagedAndUnloadableEntriesAreRebuilt) {
  Client& client = SharedClientOrDie(1);
  CompilationCache cache = MakeCache();
  ASSERT_TRUE(client.Compile(MultiplyAdd(), {}, &cache).ok());
  ASSERT_EQ(Entries().size(), 1u);
  const fs::path entry = Entries()[0];
  const std::string key = entry.stem();
  const std::string damages[] = {"short", EncodeCacheEntry(key, "intact, but no executable"), EncodeCacheEntry(key, "")};
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
