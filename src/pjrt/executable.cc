#include "pjrt/executable.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "pjrt/c_api.h"

namespace ulmus::pjrt {

Status ValidateProgram(const Program& program) {
  const auto check_values = [&](const char* what,
                                const std::vector<ProgramValue>& values) -> Status {
    for (const ProgramValue& v : values) {
      const Status valid = ValidateSharding(program.mesh, v.type.shape, v.sharding);
      if (!valid.ok())
        return valid.WithContext(
            fmt::format("program {}: {} '{}' ({})", program.name, what, v.name, v.type.ToString()));
    }
    return {};
  };
  TRY(check_values("argument", program.arguments));
  TRY(check_values("result", program.results));
  std::set<int64_t> taken;
  for (const ProgramValue& argument : program.arguments) {
    if (argument.donated_to < 0) continue;
    if (argument.donated_to >= static_cast<int64_t>(program.results.size())) {
      return InvalidArgumentError(
          "program {}: argument '{}' is donated to result {}, but there are {}", program.name,
          argument.name, argument.donated_to, program.results.size());
    }
    const ProgramValue& result = program.results[static_cast<size_t>(argument.donated_to)];
    if (!taken.insert(argument.donated_to).second) {
      return InvalidArgumentError(
          "program {}: two arguments are donated to result '{}'; the second is '{}'", program.name,
          result.name, argument.name);
    }
    if (argument.type != result.type || argument.sharding != result.sharding) {
      return InvalidArgumentError(
          "program {}: argument '{}' ({} {}) is donated to result '{}' ({} {}); both must be the "
          "same",
          program.name, argument.name, argument.type.ToString(), argument.sharding.ToString(),
          result.name, result.type.ToString(), result.sharding.ToString());
    }
  }
  return {};
}

Status CheckOutputs(const CompiledProgram& compiled, const Program& program) {
  const Result<CompiledProgram::OutputTypes> found = compiled.ComputeOutputTypes();
  if (!found.ok())
    return found.error().code() == StatusCode::kUnimplemented ? Status() : found.error();
  if (found->dtypes.size() != program.results.size()) {
    return InternalError("program {}: the text returns {} results, Program::results lists {}",
                         program.name, found->dtypes.size(), program.results.size());
  }
  for (size_t i = 0; i < program.results.size(); ++i) {
    const ProgramValue& result = program.results[i];
    const Shape local = LocalShape(program.mesh, result.type.shape, result.sharding);
    if (found->dtypes[i] != Name(result.type.dtype) || found->dims[i] != local.dims()) {
      return InternalError(
          "program {}: result {} '{}': compiled to {}{} per device, Program::results says {} as {} "
          "on ({}), which is "
          "{} per device",
          program.name, i, result.name, found->dtypes[i], Shape(found->dims[i]).ToString(),
          result.type.ToString(), result.sharding.ToString(), program.mesh.ToString(),
          TensorType{result.type.dtype, local}.ToString());
    }
  }
  return {};
}

Result<std::unique_ptr<Executable>> Executable::Create(const PJRT_Api* api,
                                                       PJRT_LoadedExecutable* handle,
                                                       const Program& program, Options options) {
  auto get = MakeArgs<PJRT_LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = handle;
  const Status got = Call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(api, get);
  // From here the handle is destroyed with the object, whatever fails.
  std::unique_ptr<Executable> executable(
      new Executable(api, handle, CompiledProgram(api, get.executable)));
  TRY(Status(got));
  TRY(CheckOutputs(executable->compiled_, program));
  executable->name_ = program.name;
  executable->devices_ = std::move(options.devices);
  executable->max_steps_in_flight_ = std::max<int64_t>(options.max_steps_in_flight, 1);
  executable->from_cache_ = options.from_cache;
  executable->compile_s_ = options.compile_s;
  for (const ProgramValue& v : program.arguments) {
    auto layout = TRY(ArrayLayout::Create(v.type, program.mesh, v.sharding, executable->devices_));
    executable->arguments_.push_back({v.name, std::move(layout), v.donated_to >= 0});
    executable->any_donated_ = executable->any_donated_ || v.donated_to >= 0;
  }
  for (const ProgramValue& v : program.results) {
    executable->results_.push_back(
        TRY(ArrayLayout::Create(v.type, program.mesh, v.sharding, executable->devices_)));
  }
  // Plugins without statistics still run programs.
  if (Result<MemoryStats> stats = executable->compiled_.ComputeMemoryStats(); stats.ok())
    executable->memory_stats_ = *stats;

  const size_t num_devices = executable->devices_.size();
  const size_t num_args = executable->arguments_.size();
  const size_t num_results = executable->results_.size();
  executable->argument_handles_.resize(num_devices * num_args);
  executable->result_handles_.resize(num_devices * num_results);
  for (size_t d = 0; d < num_devices; ++d) {
    executable->argument_lists_.push_back(executable->argument_handles_.data() + d * num_args);
    executable->result_lists_.push_back(executable->result_handles_.data() + d * num_results);
  }
  return executable;
}

Executable::~Executable() {
  (void)Wait();
  auto args = MakeArgs<PJRT_LoadedExecutable_Destroy_Args>();
  args.executable = handle_;
  (void)Call<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(api_, args);
}

Status Executable::CheckArgument(size_t index, ShardedArray& array) const {
  const Argument& argument = arguments_[index];
  if (array.layout_ == nullptr) {
    return InvalidArgumentError("{}: argument {} '{}' is an empty array, expected {}", name_, index,
                                argument.name, argument.layout->ToString());
  }
  if (array.layout_ != argument.layout) {
    const ArrayLayout& found = *array.layout_;
    const ArrayLayout& expected = *argument.layout;
    if (found.type != expected.type) {
      return InvalidArgumentError("{}: argument {} '{}': found {}, expected {}", name_, index,
                                  argument.name, found.type.ToString(), expected.type.ToString());
    }
    if (!found.Equivalent(expected)) {
      return InvalidArgumentError(
          "{}: argument {} '{}': found {} ({} per device, devices {}), expected {} ({} per device, "
          "devices {}); "
          "reshard it or upload it with the executable's argument_layout",
          name_, index, argument.name, found.ToString(), found.local->ToString(),
          found.devices.size(), expected.ToString(), expected.local->ToString(),
          expected.devices.size());
    }
    array.layout_ = argument.layout;  // equal in all that matters: the next check compares pointers
  }
  for (const Buffer& buffer : array.buffers_) {
    if (buffer.handle_ == nullptr) [[unlikely]] {
      return InvalidArgumentError(
          "{}: argument {} '{}' is deleted: it was donated to an earlier run, deleted or moved "
          "from",
          name_, index, argument.name);
    }
  }
  return {};
}

// A donated array must not be passed twice: its memory would be read and overwritten in one run.
Status Executable::CheckUsedOnce(std::span<ShardedArray* const> args) {
  if (!any_donated_) return {};
  sorted_args_.assign(args.begin(), args.end());
  std::ranges::sort(sorted_args_);
  if (std::ranges::adjacent_find(sorted_args_) == sorted_args_.end()) return {};
  for (size_t i = 0; i < args.size(); ++i) {
    if (!arguments_[i].donated) continue;
    for (size_t j = 0; j < args.size(); ++j) {
      if (i == j || args[i] != args[j]) continue;
      return InvalidArgumentError(
          "{}: one array is given both as the donated argument {} '{}' and as argument {} '{}'; "
          "pass a copy",
          name_, i, arguments_[i].name, j, arguments_[j].name);
    }
  }
  return {};
}

Status Executable::CheckArguments(std::span<ShardedArray* const> args) {
  if (args.size() != arguments_.size()) {
    return InvalidArgumentError("{}: found {} arguments, expected {}", name_, args.size(),
                                arguments_.size());
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == nullptr)
      return InvalidArgumentError("{}: argument {} '{}' is null", name_, i, arguments_[i].name);
    if (Status status = CheckArgument(i, *args[i]); !status.ok()) return status;
  }
  return CheckUsedOnce(args);
}

// The plugin has marked the donated buffers deleted; what is left of them are empty handles. If the
// launch failed, it may have failed before or after that.
void Executable::ConsumeDonated(std::span<ShardedArray* const> args, bool launched) {
  if (!any_donated_) return;
  for (size_t i = 0; i < args.size(); ++i) {
    if (arguments_[i].donated && (launched || args[i]->IsDeleted())) args[i]->Delete();
  }
}

std::vector<ShardedArray> Executable::TakeResults() {
  std::vector<ShardedArray> results;
  results.reserve(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    std::vector<Buffer> buffers;
    buffers.reserve(devices_.size());
    for (size_t d = 0; d < devices_.size(); ++d) {
      buffers.emplace_back(api_, result_handles_[d * results_.size() + i], results_[i]->local,
                           devices_[d]);
    }
    results.push_back(ShardedArray(results_[i], std::move(buffers)));
  }
  return results;
}

Status Executable::AwaitOldest() {
  Status first;
  for (PJRT_Event* event : in_flight_.front()) {
    const Status status = AwaitEvent(api_, event);
    if (first.ok()) first = status;
  }
  in_flight_.pop_front();
  return first;
}

Result<std::vector<ShardedArray>> Executable::Execute(std::span<ShardedArray* const> args) {
  TRY(CheckArguments(args));
  while (static_cast<int64_t>(in_flight_.size()) >= max_steps_in_flight_) {
    Status status = AwaitOldest();
    if (!status.ok()) return status.WithContext(fmt::format("{}: an earlier step failed", name_));
  }
  const size_t num_args = args.size();
  for (size_t i = 0; i < num_args; ++i) {
    const std::vector<Buffer>& buffers = args[i]->buffers_;
    for (size_t d = 0; d < buffers.size(); ++d)
      argument_handles_[d * num_args + i] = buffers[d].handle_;
  }
  auto options = MakeArgs<PJRT_ExecuteOptions>();
  std::vector<PJRT_Event*> done(devices_.size());
  auto run = MakeArgs<PJRT_LoadedExecutable_Execute_Args>();
  run.executable = handle_;
  run.options = &options;
  run.argument_lists = argument_lists_.data();
  run.num_devices = devices_.size();
  run.num_args = num_args;
  run.output_lists = result_lists_.data();
  run.device_complete_events = done.data();
  const Status launched = Call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(api_, run);
  ConsumeDonated(args, launched.ok());
  if (!launched.ok()) return launched.WithContext(name_);
  in_flight_.push_back(std::move(done));
  return TakeResults();
}

Status Executable::Wait() {
  Status first;
  while (!in_flight_.empty()) {
    Status status = AwaitOldest();
    if (first.ok()) first = std::move(status);
  }
  return first.WithContext(name_);
}

}  // namespace ulmus::pjrt
