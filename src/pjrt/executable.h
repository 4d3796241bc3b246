// Compiled programs: what the compiler says about them (CompiledProgram), and running them
// (Executable).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "pjrt/array.h"
#include "pjrt/handles.h"
#include "tensor/program.h"

namespace ulmus::pjrt {

// Bytes per device, as the compiler planned them.
struct MemoryStats {
  int64_t argument_bytes = 0, output_bytes = 0, alias_bytes = 0, temp_bytes = 0, code_bytes = 0;
  int64_t peak_bytes =
      0;  // the plugin's own figure; CPU plugins leave the temporaries out: use TotalBytes()
  int64_t host_argument_bytes = 0, host_output_bytes = 0, host_alias_bytes = 0, host_temp_bytes = 0,
          host_code_bytes = 0;

  // Aliased (donated) bytes count once.
  int64_t TotalBytes() const { return argument_bytes + output_bytes + temp_bytes - alias_bytes; }
};

// Owns a PJRT_Executable: the compiled form without the devices.
class CompiledProgram {
 public:
  CompiledProgram(const PJRT_Api* api, PJRT_Executable* handle) : api_(api), handle_(handle) {}
  CompiledProgram(CompiledProgram&& other) noexcept;
  CompiledProgram& operator=(CompiledProgram&& other) noexcept;
  ~CompiledProgram();

  // Per-device types of the results. kUnimplemented on plugins that do not tell.
  struct OutputTypes {
    std::vector<std::string> dtypes;
    std::vector<Dims> dims;
  };
  Result<OutputTypes> ComputeOutputTypes() const;
  Result<MemoryStats> ComputeMemoryStats() const;
  // "flops", "bytes accessed", "optimal_seconds", ...; custom calls count as nothing.
  // kUnimplemented on CUDA and on CPU plugins of API 0.106 and newer.
  Result<std::map<std::string, double>> ComputeCost() const;
  // Equal for equal programs in any process. For logs and "do all hosts run the same program", not
  // as a cache key.
  Result<std::string> ComputeFingerprint() const;
  Result<std::string> Serialize() const;
  // The program after the compiler's passes; `format` is "hlo_with_config" (binary).
  // DumpOptimizedHlo gives text.
  struct OptimizedProgram {
    std::string format, bytes;
  };
  Result<OptimizedProgram> ComputeOptimizedProgram() const;

 private:
  const PJRT_Api* api_;
  PJRT_Executable* handle_;
};

// kInternal if the compiled results differ in number, element type or per-device shape from
// Program::results.
Status CheckOutputs(const CompiledProgram& compiled, const Program& program);

// kInvalidArgument if shardings do not divide, or a donation names no result, one result twice, or
// a different type.
Status ValidateProgram(const Program& program);

// A program loaded on devices. Used by one thread at a time. Must not outlive its client.
class Executable {
 public:
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();  // waits for running steps

  // Starts one run and returns its results at once; they may be fed to the next Execute without
  // waiting. Blocks while max_steps_in_flight earlier steps still run. Arguments come in program
  // order; those with ProgramValue::donated_to are consumed. Number, type, sharding, devices and
  // deletion of every argument are checked before the plugin sees them (PJRT itself checks byte
  // counts only): kInvalidArgument names the argument. An error of an earlier step is returned here
  // instead of starting, once.
  Result<std::vector<ShardedArray>> Execute(std::span<ShardedArray* const> args);
  // Waits for every started step; the first error of any.
  Status Wait();

  const std::string& name() const { return name_; }
  MemoryStats memory_stats() const { return memory_stats_; }
  const CompiledProgram& compiled() const { return compiled_; }
  bool from_cache() const { return from_cache_; }
  double compile_s() const { return compile_s_; }  // or the time to load, from the cache
  // Layouts that Execute expects and returns; useful to upload with ShardedArray::FromHost.
  const std::shared_ptr<const ArrayLayout>& argument_layout(int64_t i) const {
    return arguments_[static_cast<size_t>(i)].layout;
  }
  const std::shared_ptr<const ArrayLayout>& result_layout(int64_t i) const {
    return results_[static_cast<size_t>(i)];
  }
  int64_t num_arguments() const { return static_cast<int64_t>(arguments_.size()); }
  int64_t num_results() const { return static_cast<int64_t>(results_.size()); }
  PJRT_LoadedExecutable* handle() const { return handle_; }

  struct Options {
    std::vector<int64_t> devices;  // of each partition
    int64_t max_steps_in_flight = 2;
    bool from_cache = false;
    double compile_s = 0;
  };
  // For Client. Takes ownership of `handle`, also when it fails.
  static Result<std::unique_ptr<Executable>> Create(const PJRT_Api* api,
                                                    PJRT_LoadedExecutable* handle,
                                                    const Program& program, Options options);

 private:
  struct Argument {
    std::string name;
    std::shared_ptr<const ArrayLayout> layout;
    bool donated = false;
  };
  Executable(const PJRT_Api* api, PJRT_LoadedExecutable* handle, CompiledProgram compiled)
      : api_(api), handle_(handle), compiled_(std::move(compiled)) {}

  Status CheckArgument(size_t index, ShardedArray& array) const;
  Status CheckArguments(std::span<ShardedArray* const> args);
  Status CheckUsedOnce(std::span<ShardedArray* const> args);
  void ConsumeDonated(std::span<ShardedArray* const> args, bool launched);
  std::vector<ShardedArray> TakeResults();
  Status AwaitOldest();

  const PJRT_Api* api_;
  PJRT_LoadedExecutable* handle_;
  CompiledProgram compiled_;
  std::string name_;
  std::vector<Argument> arguments_;
  std::vector<std::shared_ptr<const ArrayLayout>> results_;
  std::vector<int64_t> devices_;
  bool any_donated_ = false;
  int64_t max_steps_in_flight_ = 2;
  bool from_cache_ = false;
  double compile_s_ = 0;
  MemoryStats memory_stats_;

  std::deque<std::vector<PJRT_Event*>> in_flight_;  // per step, one event per device
  // Scratch of Execute, kept so that a step allocates little.
  std::vector<PJRT_Buffer*> argument_handles_, result_handles_;
  std::vector<PJRT_Buffer* const*> argument_lists_;
  std::vector<PJRT_Buffer**> result_lists_;
  std::vector<const ShardedArray*> sorted_args_;
};

}  // namespace ulmus::pjrt
