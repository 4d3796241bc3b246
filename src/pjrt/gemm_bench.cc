// Which CPU plugin, and library (YNN) fusions on or off: matrix products and one
// transformer-block-like chain, all plugins in one process, interleaved. The result decides the
// defaults: docs/decisions/0003-default-cpu-plugin.md.
//   pjrt_bench --benchmark_filter='Gemm|Block' --benchmark_enable_random_interleaving=true
//   --benchmark_repetitions=7
//              --benchmark_min_time=0.2 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <cmath>

#include "base/check.h"
#include "pjrt/client.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
namespace {

constexpr int64_t kN = 1024;                                          // matrices are N x N
constexpr int64_t kB = 2, kT = 512, kD = 512, kHeads = 8, kF = 1408;  // the block
constexpr double kBlockFlops =
    2.0 * kB * kT * (4 * kD * kD + 3 * kD * kF) + 4.0 * kB * kT * kT * kD;

ProgramValue Argument(std::string name, TensorType type) {
  const int64_t rank = type.shape.rank();
  return {std::move(name), std::move(type), Sharding::Replicated(rank), -1};
}

std::string Tensor(const Shape& shape, DType dtype) {
  std::string text = "tensor<";
  for (const int64_t dim : shape.dims()) text += std::to_string(dim) + "x";
  return text + std::string(MlirName(dtype)) + ">";
}

Program Gemm(DType in, DType out) {
  const Shape square{kN, kN};
  const std::string a = Tensor(square, in), y = Tensor(square, out);
  Program program;
  program.name = fmt::format("gemm_{}_{}", Name(in), Name(out));
  program.text = fmt::format(
      "module @gemm {{\n  func.func public @main(%a: {}, %b: {}) -> {} {{\n"
      "    %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({}, {}) -> {}\n"
      "    return %y : {}\n  }}\n}}",
      a, a, y, a, a, y, y);
  program.arguments = {Argument("a", {in, square}), Argument("b", {in, square})};
  program.results = {Argument("y", {out, square})};
  return program;
}

// Attention and SwiGLU without norms: the products of a block, and what XLA may fuse with them.
// Products accumulate in f32.
Program Block(DType dtype) {
  Program program;
  program.name = fmt::format("block_{}", Name(dtype));
  const Shape x{kB, kT, kD}, heads{kB, kT, kHeads, kD / kHeads}, scores{kB, kHeads, kT, kT},
      mixed{kB, kHeads, kT, kD / kHeads};
  const Shape hidden{kB, kT, kF}, rows{kB, kHeads, kT};
  int next = 0;
  std::string body;
  const auto emit = [&](const std::string& op) {
    body += fmt::format("    %v{} = {}\n", next, op);
    return fmt::format("%v{}", next++);
  };
  const auto convert = [&](const std::string& v, const Shape& shape, DType from, DType to) {
    if (from == to) return v;
    return emit(fmt::format("stablehlo.convert {} : ({}) -> {}", v, Tensor(shape, from),
                            Tensor(shape, to)));
  };
  const auto project = [&](const std::string& v, const Shape& in, const std::string& w,
                           const Shape& w_shape, const Shape& out) {
    const std::string f32 = emit(
        fmt::format("stablehlo.dot_general {}, {}, contracting_dims = [2] x [0] : ({}, {}) -> {}",
                    v, w, Tensor(in, dtype), Tensor(w_shape, dtype), Tensor(out, DType::kF32)));
    return convert(f32, out, DType::kF32, dtype);
  };
  const auto binary = [&](const char* op, const std::string& a, const std::string& b,
                          const Shape& shape, DType t) {
    return emit(fmt::format("stablehlo.{} {}, {} : {}", op, a, b, Tensor(shape, t)));
  };
  const auto reshape = [&](const std::string& v, const Shape& from, const Shape& to) {
    return emit(fmt::format("stablehlo.reshape {} : ({}) -> {}", v, Tensor(from, dtype),
                            Tensor(to, dtype)));
  };
  const Shape dd{kD, kD}, df{kD, kF}, fd{kF, kD};
  const std::string q = reshape(project("%x", x, "%wq", dd, x), x, heads);
  const std::string k = reshape(project("%x", x, "%wk", dd, x), x, heads);
  const std::string v = reshape(project("%x", x, "%wv", dd, x), x, heads);
  const std::string s = emit(
      fmt::format("stablehlo.dot_general {}, {}, batching_dims = [0, 2] x [0, 2], contracting_dims "
                  "= [3] x [3] : "
                  "({}, {}) -> {}",
                  q, k, Tensor(heads, dtype), Tensor(heads, dtype), Tensor(scores, DType::kF32)));
  const std::string fs = Tensor(scores, DType::kF32), fr = Tensor(rows, DType::kF32);
  const std::string zero = emit("stablehlo.constant dense<0.0> : tensor<f32>");
  const std::string lowest = emit("stablehlo.constant dense<0xFF800000> : tensor<f32>");
  const auto reduce = [&](const std::string& a, const std::string& init, const char* op) {
    const std::string r =
        emit(fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = "
                         "[3] : ({}, tensor<f32>) -> {}",
                         a, init, op, fs, fr));
    return emit(
        fmt::format("stablehlo.broadcast_in_dim {}, dims = [0, 1, 2] : ({}) -> {}", r, fr, fs));
  };
  const std::string shifted =
      binary("subtract", s, reduce(s, lowest, "maximum"), scores, DType::kF32);
  const std::string e = emit(fmt::format("stablehlo.exponential {} : {}", shifted, fs));
  const std::string p = convert(binary("divide", e, reduce(e, zero, "add"), scores, DType::kF32),
                                scores, DType::kF32, dtype);
  const std::string m = emit(
      fmt::format("stablehlo.dot_general {}, {}, batching_dims = [0, 1] x [0, 2], contracting_dims "
                  "= [3] x [1] : "
                  "({}, {}) -> {}",
                  p, v, Tensor(scores, dtype), Tensor(heads, dtype), Tensor(mixed, DType::kF32)));
  const std::string t = emit(fmt::format("stablehlo.transpose {}, dims = [0, 2, 1, 3] : ({}) -> {}",
                                         convert(m, mixed, DType::kF32, dtype),
                                         Tensor(mixed, dtype), Tensor(heads, dtype)));
  const std::string h =
      binary("add", "%x", project(reshape(t, heads, x), x, "%wo", dd, x), x, dtype);
  const std::string gate = project(h, x, "%w1", df, hidden);
  const std::string silu = binary(
      "multiply", gate,
      emit(fmt::format("stablehlo.logistic {} : {}", gate, Tensor(hidden, dtype))), hidden, dtype);
  const std::string down =
      project(binary("multiply", silu, project(h, x, "%w3", df, hidden), hidden, dtype), hidden,
              "%w2", fd, x);
  const std::string y = binary("add", h, down, x, dtype);
  const std::pair<const char*, Shape> arguments[] = {
      {"x", x}, {"wq", dd}, {"wk", dd}, {"wv", dd}, {"wo", dd}, {"w1", df}, {"w3", df}, {"w2", fd}};
  std::string signature;
  for (const auto& [name, shape] : arguments) {
    signature +=
        fmt::format("{}%{}: {}", signature.empty() ? "" : ", ", name, Tensor(shape, dtype));
    program.arguments.push_back(Argument(name, {dtype, shape}));
  }
  program.results = {Argument("y", {dtype, x})};
  program.text = fmt::format(
      "module @block {{\n  func.func public @main({}) -> {} {{\n{}    return {} : {}\n  }}\n}}",
      signature, Tensor(x, dtype), body, y, Tensor(x, dtype));
  return program;
}

// Values around zero that differ everywhere, small enough that the block's sums stay near one.
HostTensor Input(const TensorType& type) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.Set(i, static_cast<double>((i * 37 + i / 11) % 101 - 50) / 1000);
  return t;
}

// Largest difference to the default plugin's f32 result, relative to the largest element. Checked
// before anything is timed.
void CheckAnswer(const Program& program, const Program& reference_program,
                 const HostTensor& answer) {
  Result<Client*> client = SharedDefaultClient();
  CHECK(client.ok(), "{}", client.status().ToString());
  std::vector<HostTensor> args;
  for (const ProgramValue& argument : reference_program.arguments)
    args.push_back(Input(argument.type));
  const auto reference = RunOnce(**client, reference_program, args);
  CHECK(reference.ok(), "{}", reference.status().ToString());
  double largest = 0, error = 0;
  for (int64_t i = 0; i < answer.num_elements(); i += 127) {
    largest = std::max(largest, std::abs(reference->front().Get(i)));
    error = std::max(error, std::abs(reference->front().Get(i) - answer.Get(i)));
  }
  CHECK(error <= 0.02 * largest, "{}: error {} of {}", program.name, error,
        largest);  // bf16 keeps 8 bits
}

void TimeProgram(benchmark::State& state, const PluginCandidate& plugin, const Program& program,
                 const Program& reference, double flops, bool ynn) {
  // Neither setting may depend on the default of the machine at hand.
  Result<Client*> client = SharedClient(plugin);
  CHECK(client.ok(), "{}", client.status().ToString());
  CompileOptions options;
  options.default_overrides = false;
  if (!ynn) options.overrides["xla_cpu_experimental_ynn_fusion_type"] = std::string();
  const auto executable = (*client)->Compile(program, options);
  CHECK(executable.ok(), "{}", executable.status().ToString());
  std::vector<ShardedArray> arrays;
  std::vector<ShardedArray*> args;
  for (int64_t i = 0; i < (*executable)->num_arguments(); ++i) {
    const auto& layout = (*executable)->argument_layout(i);
    arrays.push_back(std::move(*ShardedArray::FromHost(**client, Input(layout->type), layout)));
  }
  for (ShardedArray& array : arrays) args.push_back(&array);
  const auto run = [&] {
    Result<std::vector<ShardedArray>> results = (*executable)->Execute(args);
    CHECK(results.ok(), "{}", results.status().ToString());
    CHECK((*executable)->Wait().ok(), "step failed");
    return std::move(results->front());
  };
  CheckAnswer(program, reference, *run().ToHost());
  for (auto _ : state) benchmark::DoNotOptimize(run());
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

[[maybe_unused]] const bool kRegistered = [] {
  struct Case {
    std::string name;
    Program program, reference;
    double flops;
  };
  const double gemm_flops = 2.0 * kN * kN * kN;
  const Program gemm = Gemm(DType::kF32, DType::kF32), block = Block(DType::kF32);
  const Case cases[] = {
      {"Gemm/f32", gemm, gemm, gemm_flops},
      {"Gemm/bf16_f32", Gemm(DType::kBF16, DType::kF32), gemm, gemm_flops},
      {"Gemm/bf16", Gemm(DType::kBF16, DType::kBF16), gemm, gemm_flops},
      {"Block/f32", block, block, kBlockFlops},
      {"Block/bf16", Block(DType::kBF16), block, kBlockFlops},
  };
  for (const Case& c : cases) {
    for (const PluginCandidate& plugin : InstalledCpuPlugins()) {
      for (const bool ynn : {false, true}) {
        const std::string name =
            fmt::format("{}/{}/{}", c.name, plugin.name, ynn ? "plugin_default" : "ynn_off");
        benchmark::RegisterBenchmark(name.c_str(), TimeProgram, plugin, c.program, c.reference,
                                     c.flops, ynn)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::pjrt
