#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "pjrt/client.h"
#include "pjrt/run.h"
#include "pjrt/test_handlers.h"
#include "pjrt/test_programs.h"

namespace ulmus::pjrt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CustomCallTest : public EachCpuPlugin {};
INSTANTIATE_TEST_SUITE_P(Plugins, CustomCallTest, testing::ValuesIn(KnownCpuPlugins()),
                         PluginTestName);

// y = target(x) * x over f32[n]: large enough that the CPU client runs it on its pool, not in the
// caller.
constexpr int64_t kCount = 1 << 18;
Program Calling(const std::string& target) {
  const TensorType t{DType::kF32, {kCount}};
  const std::string tensor = "tensor<" + std::to_string(kCount) + "xf32>";
  return {.name = "calling_" + target,
          .text = "module @calling {\n  func.func public @main(%x: " + tensor + ") -> " + tensor +
                  " {\n    %0 = stablehlo.custom_call @" + target +
                  "(%x) {api_version = 4 : i32} : (" + tensor + ") -> " + tensor +
                  "\n    %1 = stablehlo.multiply %0, %x : " + tensor +
                  "\n    return %1 : " + tensor + "\n  }\n}",
          .mesh = {},
          .arguments = {Value("x", t)},
          .results = {Value("y", t)},
          .custom_calls = {target}};
}

CustomCallHandler Handler(const char* target, void* (*function)(ffi_layout::CallFrame*) noexcept,
                          int64_t version = 1) {
  return {target, reinterpret_cast<void*>(function), version};
}

HostTensor Threes() {
  HostTensor t(TensorType{DType::kF32, {kCount}});
  for (float& v : t.values<float>()) v = 3;
  return t;
}

TEST_P(CustomCallTest, RunsAndIsRegisteredOnce) {
  Client& client = SharedClientOrDie(1);
  const CustomCallHandler handlers[] = {Handler("test_add_one", ffi_layout::AddOne)};
  ASSERT_TRUE(RegisterCustomCalls(client.plugin(), handlers).ok());
  EXPECT_TRUE(RegisterCustomCalls(client.plugin(), handlers).ok());  // again: nothing to do
  EXPECT_EQ(client.plugin().custom_calls().at("test_add_one"), 1);
  std::vector<HostTensor> args;
  args.push_back(Threes());
  const auto results = RunOnce(client, Calling("test_add_one"), args);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  EXPECT_EQ(results->front().Get(kCount - 1), 12);

  const CustomCallHandler other[] = {Handler("test_add_one", ffi_layout::Fail)};
  EXPECT_EQ(RegisterCustomCalls(client.plugin(), other).code(), StatusCode::kAlreadyExists);
  const CustomCallHandler newer[] = {Handler("test_add_one", ffi_layout::AddOne, 2)};
  EXPECT_EQ(RegisterCustomCalls(client.plugin(), newer).code(), StatusCode::kAlreadyExists);
  const CustomCallHandler null[] = {{"test_null", nullptr, 1}};
  EXPECT_EQ(RegisterCustomCalls(client.plugin(), null).code(), StatusCode::kInvalidArgument);
}

TEST_P(CustomCallTest, CompilingWithoutItsHandlerFailsEarlyAndByName) {
  const auto executable = SharedClientOrDie(1).Compile(Calling("test_nobody"));
  EXPECT_EQ(executable.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(executable.status().message(),
              AllOf(HasSubstr("'test_nobody'"), HasSubstr("RegisterCustomCalls")));
}

TEST_P(CustomCallTest, AnErrorOfAStepSurfacesOnceAtWaitOrALaterExecute) {
  Client& client = SharedClientOrDie(1);
  const CustomCallHandler handlers[] = {Handler("test_fail", ffi_layout::Fail)};
  ASSERT_TRUE(RegisterCustomCalls(client.plugin(), handlers).ok());
  const auto executable = client.Compile(Calling("test_fail"));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  auto x = ShardedArray::FromHost(client, Threes(), Mesh(), Sharding::Replicated(1));
  ShardedArray* const args[] = {&*x};
  ASSERT_TRUE((*executable)->Execute(args).ok());
  const Status waited = (*executable)->Wait();
  EXPECT_THAT(waited.message(),
              AllOf(HasSubstr("the handler said no"), Not(HasSubstr("Source Location Trace"))))
      << waited.ToString();
  EXPECT_TRUE((*executable)->Wait().ok());

  auto first = (*executable)->Execute(args);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->front().ToHost().status().message(),
              HasSubstr("the handler said no"));  // the result carries it too
  ASSERT_TRUE((*executable)->Execute(args).ok());
  const auto third = (*executable)->Execute(args);
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(third.error().message(),
              AllOf(HasSubstr("an earlier step failed"), HasSubstr("the handler said no")));
}

TEST_P(CustomCallTest, RunsAheadByTwoStepsAndNoFurther) {
  Client& client =
      SharedClientOrDie(8);  // eight threads: two blocked handlers do not fill the pool
  const CustomCallHandler handlers[] = {Handler("test_gate", ffi_layout::WaitAtGate)};
  ASSERT_TRUE(RegisterCustomCalls(client.plugin(), handlers).ok());
  const auto executable = client.Compile(Calling("test_gate"));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  auto x = ShardedArray::FromHost(client, Threes(), Mesh(), Sharding::Replicated(1));
  ShardedArray* const args[] = {&*x};
  ffi_layout::TheGate().Set(false);
  std::vector<ShardedArray> results;
  for (int step = 0; step < 2; ++step) {
    auto result = (*executable)->Execute(args);  // returns although nothing can finish
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    results.push_back(std::move(result->front()));
  }
  std::atomic<bool> returned = false;
  std::thread third([&] {
    auto result = (*executable)->Execute(args);
    returned = true;
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    results.push_back(std::move(result->front()));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(returned);
  ffi_layout::TheGate().Set(true);
  third.join();
  EXPECT_TRUE((*executable)->Wait().ok());
  for (const ShardedArray& result : results) EXPECT_EQ(result.ToHost()->Get(5), 12);
}

TEST_P(CustomCallTest, CachedProgramsFindTheirHandlers) {
  Client& client = SharedClientOrDie(1);
  const CustomCallHandler handlers[] = {Handler("test_add_one", ffi_layout::AddOne)};
  ASSERT_TRUE(RegisterCustomCalls(client.plugin(), handlers).ok());
  const std::string directory = testing::TempDir() + "ulmus_custom_call_cache_" + GetParam().name;
  std::filesystem::remove_all(directory);
  CompilationCache cache(
      {.directory = directory, .log = [](std::string_view line) { ADD_FAILURE() << line; }});
  for (const bool from_cache : {false, true}) {
    const auto executable = client.Compile(Calling("test_add_one"), {}, &cache);
    ASSERT_TRUE(executable.ok()) << executable.status().ToString();
    EXPECT_EQ((*executable)->from_cache(), from_cache);
    auto x = ShardedArray::FromHost(client, Threes(), Mesh(), Sharding::Replicated(1));
    ShardedArray* const args[] = {&*x};
    const auto result = (*executable)->Execute(args);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->front().ToHost()->Get(0), 12);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace ulmus::pjrt
