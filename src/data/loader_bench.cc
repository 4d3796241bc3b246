// The loader from page cache, the first batch far into a run, and the n-gram filter.
// bench/loader.sh runs it beside Grain's DataLoader on the same files.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"
#include "data/config.h"
#include "data/testing/fake_source.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

constexpr int64_t kLength = 8192;

// The files of $ULMUS_BENCH_TOKENS (headerless uint32), or one of 2^26 tokens made here.
DataConfig BenchConfig() {
  static const TempDir made;
  DataConfig config;
  config.sequence_length = kLength;
  config.global_batch = 64;
  config.end = "wrap";
  Path folder = made.path();
  if (const char* given = std::getenv("ULMUS_BENCH_TOKENS")) {
    folder = given;
  } else if (!*PathExists(folder / "0.npy")) {
    std::vector<uint32_t> tokens(size_t{1} << 26);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<uint32_t>((i * 2654435761u >> 16) % 100'000);
    CHECK(WriteFileAtomic(folder / "0.npy", std::as_bytes(std::span(tokens))).ok());
  }
  const auto names = ListDirectory(folder);
  CHECK(names.ok(), "{}", names.status().message());
  for (const std::string& name : *names) {
    if (name.ends_with(".npy")) config.paths.push_back(folder / name);
  }
  return config;
}

// Of all threads of the process.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Tokens a second in batches of 64 x 8192, threads = range(0); 0: tokens and loss mask, as a
// training step takes them, 1: and targets, 2: and the n-gram filter.
void LoadBatches(benchmark::State& state) {
  DataConfig config = BenchConfig();
  config.loader_threads = state.range(0);
  config.ngram_filter = state.range(1) == 2 ? "olmo_core" : "off";
  auto data = OpenData(config);
  CHECK(data.ok(), "{}", data.status().message());
  data->loader.batch.want_targets = state.range(1) >= 1;
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  CHECK(loader.ok(), "{}", loader.status().message());
  const auto check = [&](const Batch& batch) {
    std::vector<int32_t> row(static_cast<size_t>(kLength));
    CHECK(data->source->Read(batch.id(5), {.tokens = row}).ok());
    CHECK(std::ranges::equal(row, batch.tokens.values<int32_t>().subspan(5 * kLength, kLength)));
  };
  // Once through the files, so that they are in the page cache.
  for (int64_t step = 0; step < data->source->num_instances() / 64; ++step) {
    const auto batch = (*loader)->Next();
    CHECK(batch.ok(), "{}", batch.status().message());
    check(**batch);
  }
  const double cpu_before = CpuSeconds();
  int64_t tokens = 0;
  for (auto _ : state) {
    const auto batch = (*loader)->Next();
    CHECK(batch.ok());
    tokens += (*batch)->tokens.num_elements();
  }
  state.counters["tokens_per_s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  // What one core would read if nothing else ran on it.
  state.counters["tokens_per_cpu_s"] = static_cast<double>(tokens) / (CpuSeconds() - cpu_before);
  state.counters["wait_share"] =
      benchmark::Counter((*loader)->stats().wait_s, benchmark::Counter::kIsRate);
}
BENCHMARK(LoadBatches)
    ->ArgsProduct({{1, 2}, {0, 1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2);

// Opens an order of 724,000,000 instances (5.93e12 tokens) and reads the batch of step 1,000,000:
// the time a resumed run waits. The permutation is built beforehand, unless the cache has it.
void FirstBatchFarInside(benchmark::State& state) {
  const FakeSource source({.num_instances = 724'000'000, .sequence_length = kLength});
  const OrderConfig config = {
      .kind = state.range(0) == 0 ? OrderKind::kOlmoCore : OrderKind::kGrain,
      .seed = 34521,
      .num_instances = source.num_instances(),
      .batch_size = 512};
  CHECK((*GlobalOrder::Create(config))->Prepare().ok());
  for (auto _ : state) {
    const auto order = GlobalOrder::Create(config);
    CHECK(order.ok());
    const auto loader = Loader::Create(source, **order, {.first_step = 1'000'000, .read_ahead = 2});
    CHECK(loader.ok());
    const auto batch = (*loader)->Next();
    CHECK(batch.ok() && (*batch)->step == 1'000'000, "{}", batch.status().message());
  }
}
BENCHMARK(FirstBatchFarInside)->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);

void FilterInstance(benchmark::State& state) {
  std::vector<int32_t> tokens(static_cast<size_t>(kLength));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((i * 2654435761u >> 16) % 100'000);
  CHECK(!HasRepeatedNgram({}, tokens));
  for (auto _ : state) benchmark::DoNotOptimize(HasRepeatedNgram({}, tokens));
}
BENCHMARK(FilterInstance)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ulmus::data
