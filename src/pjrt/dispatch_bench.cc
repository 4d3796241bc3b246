// What Executable::Execute adds to PJRT's own Execute: a step of 60 arguments on 8 virtual devices,
// started alternately through the C API alone and through us, in one process. Budget: 100 us.
//   pjrt_bench --benchmark_filter=Dispatch
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>

#include "base/check.h"
#include "pjrt/c_api.h"
#include "pjrt/client.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
namespace {

constexpr int64_t kArguments = 60;
constexpr int64_t kDevices = 8;
constexpr int64_t kRows = 64, kColumns = 8;

// Result i is argument i plus one.
Program ManyArguments(bool donated) {
  const TensorType type{DType::kF32, {kRows, kColumns}};
  const Sharding sharding{{{"fsdp"}, {}}};
  Program program;
  program.name = donated ? "many_donated" : "many";
  program.mesh = Mesh({{"data", 1}, {"fsdp", kDevices}, {"tensor", 1}});
  const std::string annotation = "sdy.sharding = #sdy.sharding<@mesh, [{\"fsdp\"}, {}]>";
  std::string arguments, types, body, returned;
  for (int64_t i = 0; i < kArguments; ++i) {
    const char* comma = i == 0 ? "" : ", ";
    arguments += fmt::format("{}%a{}: tensor<64x8xf32> {{{}{}}}", comma, i, annotation,
                             donated ? fmt::format(", tf.aliasing_output = {} : i32", i) : "");
    types += fmt::format("{}tensor<64x8xf32> {{{}}}", comma, annotation);
    body += fmt::format("    %r{} = stablehlo.add %a{}, %one : tensor<64x8xf32>\n", i, i);
    returned += fmt::format("{}%r{}", comma, i);
    program.arguments.push_back({fmt::format("a{}", i), type, sharding, donated ? i : -1});
    program.results.push_back({fmt::format("r{}", i), type, sharding, -1});
  }
  std::string plain_types = "tensor<64x8xf32>";
  for (int64_t i = 1; i < kArguments; ++i) plain_types += ", tensor<64x8xf32>";
  program.text = fmt::format(
      "module @many {{\n  sdy.mesh @mesh = <[\"data\"=1, \"fsdp\"={}, \"tensor\"=1]>\n  func.func "
      "public @main({}) -> ({}) {{\n"
      "    %one = stablehlo.constant dense<1.0> : tensor<64x8xf32>\n{}    return {} : {}\n  }}\n}}",
      kDevices, arguments, types, body, returned, plain_types);
  return program;
}

// Wall time, and this thread's CPU time: the devices' threads take the cores away while a step is
// being started, so that wall time charges us for them.
struct Stopwatch {
  static double Now(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
  }
  double wall_start = Now(CLOCK_MONOTONIC), cpu_start = Now(CLOCK_THREAD_CPUTIME_ID);

  struct Elapsed {
    double wall_us, cpu_us;
  };
  Elapsed Read() const {
    return {Now(CLOCK_MONOTONIC) - wall_start, Now(CLOCK_THREAD_CPUTIME_ID) - cpu_start};
  }
};

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

// The same step with nothing but the C API: buffers[device][argument], replaced by the results.
struct RawStep {
  const PJRT_Api* api;
  PJRT_LoadedExecutable* executable;
  std::vector<std::vector<PJRT_Buffer*>> buffers;

  static void Destroy(const PJRT_Api* c_api, std::vector<std::vector<PJRT_Buffer*>>& lists) {
    for (auto& list : lists) {
      for (PJRT_Buffer* buffer : list) {
        auto destroy = MakeArgs<PJRT_Buffer_Destroy_Args>();
        destroy.buffer = buffer;
        c_api->PJRT_Buffer_Destroy(&destroy);
      }
    }
  }

  // Until the step is started and its inputs are given up.
  Stopwatch::Elapsed Run() {
    const Stopwatch stopwatch;
    std::vector<std::vector<PJRT_Buffer*>> outputs(kDevices, std::vector<PJRT_Buffer*>(kArguments));
    std::vector<PJRT_Buffer* const*> in;
    std::vector<PJRT_Buffer**> out;
    for (auto& list : buffers) in.push_back(list.data());
    for (auto& list : outputs) out.push_back(list.data());
    std::vector<PJRT_Event*> done(kDevices);
    auto options = MakeArgs<PJRT_ExecuteOptions>();
    auto args = MakeArgs<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable;
    args.options = &options;
    args.argument_lists = in.data();
    args.num_devices = kDevices;
    args.num_args = kArguments;
    args.output_lists = out.data();
    args.device_complete_events = done.data();
    CHECK(api->PJRT_LoadedExecutable_Execute(&args) == nullptr, "raw Execute failed");
    Destroy(api, buffers);
    const Stopwatch::Elapsed elapsed = stopwatch.Read();
    for (PJRT_Event* event : done) CHECK(AwaitEvent(api, event).ok(), "raw step failed");
    buffers = std::move(outputs);
    return elapsed;
  }
};

void Dispatch(benchmark::State& state, const PluginCandidate& plugin, bool donated) {
  Result<Client*> client = SharedClient(plugin, kDevices);
  CHECK(client.ok(), "{}", client.status().ToString());
  const auto executable = (*client)->Compile(ManyArguments(donated));
  CHECK(executable.ok(), "{}", executable.status().ToString());
  const HostTensor zeros(TensorType{DType::kF32, {kRows, kColumns}});
  std::vector<ShardedArray> arrays;
  RawStep raw{(*client)->api(), (*executable)->handle(),
              std::vector<std::vector<PJRT_Buffer*>>(kDevices)};
  for (int64_t i = 0; i < kArguments; ++i) {
    arrays.push_back(
        std::move(*ShardedArray::FromHost(**client, zeros, (*executable)->argument_layout(i))));
    for (int64_t d = 0; d < kDevices; ++d) {
      const std::shared_ptr<const TensorType> local = (*executable)->argument_layout(i)->local;
      const HostTensor block(*local);
      auto upload = MakeArgs<PJRT_Client_BufferFromHostBuffer_Args>();
      upload.client = (*client)->handle();
      upload.data = block.bytes().data();
      upload.type = ToBufferType(local->dtype);
      upload.dims = local->shape.dims().data();
      upload.num_dims = local->shape.dims().size();
      upload.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
      upload.device = (*client)->device_handle(d);
      CHECK(Call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(raw.api, upload).ok(),
            "upload failed");
      DestroyEvent(raw.api, upload.done_with_host_buffer);
      raw.buffers[static_cast<size_t>(d)].push_back(upload.buffer);
    }
  }
  std::vector<double> raw_us, our_us, difference_us, cpu_difference_us;
  const auto run_ours = [&] {
    std::vector<ShardedArray*> args;
    for (ShardedArray& array : arrays) args.push_back(&array);
    const Stopwatch stopwatch;
    Result<std::vector<ShardedArray>> results = (*executable)->Execute(args);
    CHECK(results.ok(), "{}", results.status().ToString());
    arrays = std::move(*results);  // gives up the inputs
    const Stopwatch::Elapsed elapsed = stopwatch.Read();
    CHECK((*executable)->Wait().ok(), "step failed");
    return elapsed;
  };
  int64_t steps = 0;
  for (auto _ : state) {
    // Alternating order, so that whoever comes first does not always pay for cold caches.
    const bool raw_first = steps++ % 2 == 0;
    const Stopwatch::Elapsed first = raw_first ? raw.Run() : run_ours();
    const Stopwatch::Elapsed second = raw_first ? run_ours() : raw.Run();
    const Stopwatch::Elapsed& raw_step = raw_first ? first : second;
    const Stopwatch::Elapsed& our_step = raw_first ? second : first;
    raw_us.push_back(raw_step.wall_us);
    our_us.push_back(our_step.wall_us);
    difference_us.push_back(our_step.wall_us - raw_step.wall_us);
    cpu_difference_us.push_back(our_step.cpu_us - raw_step.cpu_us);
    state.SetIterationTime(our_us.back() * 1e-6);
  }
  const auto value = arrays.back().ToHost();
  CHECK(value.ok() && value->Get(0) == static_cast<double>(steps), "after {} steps the state is {}",
        steps, value->Get(0));
  RawStep::Destroy(raw.api, raw.buffers);
  state.counters["raw_us"] = Median(raw_us);
  state.counters["ours_us"] = Median(our_us);
  state.counters["difference_us"] = Median(difference_us);
  state.counters["cpu_difference_us"] = Median(cpu_difference_us);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const PluginCandidate& plugin : InstalledCpuPlugins()) {
    for (const bool donated : {false, true}) {
      const std::string name =
          fmt::format("Dispatch/{}/{}", plugin.name, donated ? "donated" : "kept");
      benchmark::RegisterBenchmark(name.c_str(), Dispatch, plugin, donated)
          ->UseManualTime()
          ->Iterations(400)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::pjrt
