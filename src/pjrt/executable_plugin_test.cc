#include "pjrt/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "pjrt/client.h"
#include "pjrt/run.h"
#include "pjrt/test_programs.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ExecutableTest : public EachCpuPlugin {};
INSTANTIATE_TEST_SUITE_P(Plugins, ExecutableTest, testing::ValuesIn(KnownCpuPlugins()),
                         PluginTestName);

HostTensor Iota(Shape shape) {
  HostTensor t(TensorType{DType::kF32, std::move(shape)});
  auto values = t.values<float>();
  std::iota(values.begin(), values.end(), 0.0f);
  return t;
}

TEST_P(ExecutableTest, RunsAProgramAndReturnsItsNumbers) {
  std::vector<HostTensor> args;
  args.push_back(Floats({2, 2}, {1, 2, 3, 4}));
  args.push_back(Floats({2, 2}, {5, 6, 7, 8}));
  args.push_back(Floats({2, 2}, {0.5, 0, 0, -1}));
  const auto results = RunOnce(SharedClientOrDie(1), MultiplyAdd(), args);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  ASSERT_EQ(results->size(), 1u);
  EXPECT_THAT(ValuesOf(results->front()), ElementsAre(19.5, 22, 43, 49));
}

TEST_P(ExecutableTest, ShardedProgramGivesTheSameNumbersAsOnOneDevice) {
  std::vector<HostTensor> args;
  args.push_back(Iota({8, 6}));
  args.push_back(Iota({6, 4}));
  const auto results = RunOnce(SharedClientOrDie(8), ShardedMatmul(), args);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  for (int64_t i = 0; i < 8; ++i) {
    double row_sum = 0;
    for (int64_t j = 0; j < 4; ++j) {
      double want = 0;
      for (int64_t k = 0; k < 6; ++k) want += args[0].Get(i * 6 + k) * args[1].Get(k * 4 + j);
      EXPECT_EQ((*results)[0].Get(i * 4 + j), want)
          << i << "," << j;  // small integers: exact in f32
      row_sum += want;
    }
    EXPECT_EQ((*results)[1].Get(i), row_sum) << i;
  }
}

TEST_P(ExecutableTest, DonatedArgumentIsConsumedAndItsMemoryReused) {
  Client& client = SharedClientOrDie(1);
  const auto executable = client.Compile(Counter(1024));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  EXPECT_EQ((*executable)->memory_stats().alias_bytes, 4096);
  auto state = ShardedArray::FromHost(client, Iota({1024}), (*executable)->argument_layout(0));
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  ASSERT_TRUE(state->Wait().ok());
  const void* before = *state->shard(0).UnsafePointer();
  ShardedArray* const args[] = {&*state};
  auto results = (*executable)->Execute(args);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  EXPECT_TRUE(state->IsDeleted());
  ASSERT_TRUE((*executable)->Wait().ok());
  EXPECT_EQ(*results->front().shard(0).UnsafePointer(), before);
  EXPECT_EQ(results->front().ToHost()->Get(7), 8);

  const auto again = (*executable)->Execute(args);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(again.error().message(), HasSubstr("argument 0 'state' is deleted"));
}

TEST_P(ExecutableTest, WrongArgumentsAreRefusedByName) {
  Client& client = SharedClientOrDie(8);
  const auto executable = client.Compile(ShardedMatmul());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const Mesh& mesh = ShardedMatmul().mesh;
  const auto make = [&](TensorType type, Sharding sharding) {
    return std::move(*ShardedArray::FromHost(client, HostTensor(std::move(type)), mesh, sharding));
  };
  ShardedArray x = make({DType::kF32, {8, 6}}, {{{"data"}, {}}});
  ShardedArray w = make({DType::kF32, {6, 4}}, {{{}, {"tensor"}}});
  struct Case {
    ShardedArray w;
    const char* message;
  };
  Case cases[] = {
      {make({DType::kI32, {6, 4}}, {{{}, {"tensor"}}}),
       "argument 1 'w': found i32[6,4], expected f32[6,4]"},
      {make({DType::kF32, {4, 6}}, {{{}, {"tensor"}}}),
       "argument 1 'w': found f32[4,6], expected f32[6,4]"},
      {make({DType::kF32, {6, 4}}, {{{}, {}}}), "argument 1 'w': found f32[6,4] as [{}, {}]"},
      {make({DType::kF32, {6, 4}}, {{{"tensor"}, {}}}), "(f32[3,4] per device"},
      {ShardedArray(), "argument 1 'w' is an empty array"},
  };
  for (Case& c : cases) {
    ShardedArray* const args[] = {&x, &c.w};
    const auto result = (*executable)->Execute(args);
    ASSERT_FALSE(result.ok()) << c.message;
    EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr(c.message));
  }
  ShardedArray* const too_few[] = {&x};
  EXPECT_THAT((*executable)->Execute(too_few).status().message(),
              HasSubstr("found 1 arguments, expected 2"));
  ShardedArray* const null[] = {&x, nullptr};
  EXPECT_THAT((*executable)->Execute(null).status().message(), HasSubstr("argument 1 'w' is null"));
  ShardedArray* const right[] = {&x, &w};
  EXPECT_TRUE((*executable)->Execute(right).ok());
}

TEST_P(ExecutableTest, OneArrayCannotBeDonatedAndReadInOneRun) {
  Client& client = SharedClientOrDie(1);
  const TensorType t{DType::kF32, {4}};
  Program program{.name = "two",
                  .text = R"(module @two {
  func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})",
                  .mesh = {},
                  .arguments = {Value("a", t), Value("b", t)},
                  .results = {Value("y", t)},
                  .custom_calls = {}};
  program.arguments[0].donated_to = 0;
  const auto executable = client.Compile(program);
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  auto x = ShardedArray::FromHost(client, Iota({4}), (*executable)->argument_layout(0));
  ShardedArray* const same[] = {&*x, &*x};
  EXPECT_THAT((*executable)->Execute(same).status().message(),
              HasSubstr("donated argument 0 'a' and as argument 1 'b'"));
  EXPECT_FALSE(x->IsDeleted());
}

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_P(ExecutableTest, ManyStepsWithDonationUploadAndDownloadDoNotGrow) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  Client& client = SharedClientOrDie(1);
  constexpr int64_t kCount = 1 << 20;  // 4 MiB
  const auto executable = client.Compile(Counter(kCount));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const HostTensor zeros(TensorType{DType::kF32, {kCount}});
  int64_t before = 0;
  for (int step = 0; step < 80; ++step) {
    if (step == 20) before = ResidentBytes();
    auto state = ShardedArray::FromHost(client, zeros, (*executable)->argument_layout(0));
    ShardedArray* const args[] = {&*state};
    auto results = (*executable)->Execute(args);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    ASSERT_EQ(results->front().ToHost()->Get(0), 1);
  }
  EXPECT_LT(ResidentBytes() - before, 5 * 4 * kCount);  // a leak of one buffer per step would be 60
}

}  // namespace
}  // namespace ulmus::pjrt
