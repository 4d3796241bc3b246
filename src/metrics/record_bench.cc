// What a step record costs the training loop.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/file.h"
#include "metrics/console_sink.h"
#include "metrics/jsonl.h"
#include "metrics/record_testing.h"
#include "metrics/recorder.h"
#include "metrics/tensorboard.h"

namespace ulmus::metrics {
namespace {

// All sinks of a run; `norms` values per layer on top.
void BM_RecordStep(benchmark::State& state) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  SetMinLogLevel(LogLevel::kError);
  Result<Recorder> recorder =
      Recorder::Open(paths, {.resume_step = 0, .total_steps = 1, .line_interval = 10});
  CHECK(recorder.ok(), "{}", recorder.error().message());
  int64_t step = 0;
  StepRecord record = TestStep(1);
  for (int64_t k = 0; k < state.range(0); ++k)
    record.norms.push_back({fmt::format("grad_norm/model.layers.{}", k), 1.0 / 3});
  for (auto _ : state) {
    record.step = ++step;
    CHECK(recorder->Write(record).ok());
  }
  CHECK(std::ssize(JsonSteps(paths.metrics())) == step);
  CHECK(std::ssize(ShownSteps(paths.root)) == step);
}
BENCHMARK(BM_RecordStep)->ArgName("norms")->Arg(0)->Arg(64)->Unit(benchmark::kMicrosecond);

void BM_ReadMetrics(benchmark::State& state) {
  const TempDir folder;
  const Path path = folder.path() / "metrics.jsonl";
  {
    const Result<std::unique_ptr<Sink>> sink = JsonlSink::Open(path);
    CHECK(sink.ok());
    for (int64_t step = 1; step <= 10'000; ++step) CHECK((*sink)->Write(TestStep(step)).ok());
  }
  for (auto _ : state) CHECK(JsonSteps(path).size() == 10'000u);
  state.SetItemsProcessed(state.iterations() * 10'000);
}
BENCHMARK(BM_ReadMetrics)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ulmus::metrics
