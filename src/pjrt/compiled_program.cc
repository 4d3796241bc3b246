#include <utility>

#include "pjrt/c_api.h"
#include "pjrt/executable.h"

namespace ulmus::pjrt {

CompiledProgram::CompiledProgram(CompiledProgram&& other) noexcept
    : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}

CompiledProgram& CompiledProgram::operator=(CompiledProgram&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  return *this;
}

CompiledProgram::~CompiledProgram() {
  if (handle_ == nullptr) return;
  auto args = MakeArgs<PJRT_Executable_Destroy_Args>();
  args.executable = handle_;
  (void)Call<&PJRT_Api::PJRT_Executable_Destroy>(api_, args);
}

Result<CompiledProgram::OutputTypes> CompiledProgram::ComputeOutputTypes() const {
  auto count = MakeArgs<PJRT_Executable_NumOutputs_Args>();
  count.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_NumOutputs>(api_, count));
  auto types = MakeArgs<PJRT_Executable_OutputElementTypes_Args>();
  types.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_OutputElementTypes>(api_, types));
  auto dims = MakeArgs<PJRT_Executable_OutputDimensions_Args>();
  dims.executable = handle_;
  dims.num_outputs = count.num_outputs;
  TRY(Call<&PJRT_Api::PJRT_Executable_OutputDimensions>(api_, dims));
  OutputTypes out;
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    out.dtypes.push_back(BufferTypeName(EnumAsInt(types.output_types[i])));
    out.dims.emplace_back(next, next + dims.dim_sizes[i]);
    next += dims.dim_sizes[i];
  }
  return out;
}

Result<MemoryStats> CompiledProgram::ComputeMemoryStats() const {
  auto args = MakeArgs<PJRT_Executable_GetCompiledMemoryStats_Args>();
  args.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats>(api_, args));
  return MemoryStats{.argument_bytes = args.argument_size_in_bytes,
                     .output_bytes = args.output_size_in_bytes,
                     .alias_bytes = args.alias_size_in_bytes,
                     .temp_bytes = args.temp_size_in_bytes,
                     .code_bytes = args.generated_code_size_in_bytes,
                     .peak_bytes = args.peak_memory_in_bytes,
                     .host_argument_bytes = args.host_argument_size_in_bytes,
                     .host_output_bytes = args.host_output_size_in_bytes,
                     .host_alias_bytes = args.host_alias_size_in_bytes,
                     .host_temp_bytes = args.host_temp_size_in_bytes,
                     .host_code_bytes = args.host_generated_code_size_in_bytes};
}

Result<std::map<std::string, double>> CompiledProgram::ComputeCost() const {
  auto args = MakeArgs<PJRT_Executable_GetCostAnalysis_Args>();
  args.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_GetCostAnalysis>(api_, args));
  std::map<std::string, double> cost;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& v = args.properties[i];
    const std::string name(v.name, v.name_size);
    if (v.type == PJRT_NamedValue_kFloat) cost[name] = static_cast<double>(v.float_value);
    if (v.type == PJRT_NamedValue_kInt64) cost[name] = static_cast<double>(v.int64_value);
  }
  return cost;
}

Result<std::string> CompiledProgram::ComputeFingerprint() const {
  auto args = MakeArgs<PJRT_Executable_Fingerprint_Args>();
  args.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_Fingerprint>(api_, args));
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

Result<std::string> CompiledProgram::Serialize() const {
  auto args = MakeArgs<PJRT_Executable_Serialize_Args>();
  args.executable = handle_;
  TRY(Call<&PJRT_Api::PJRT_Executable_Serialize>(api_, args));
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr)
    args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

Result<CompiledProgram::OptimizedProgram> CompiledProgram::ComputeOptimizedProgram() const {
  auto program = MakeArgs<PJRT_Program>();
  auto args = MakeArgs<PJRT_Executable_OptimizedProgram_Args>();
  args.executable = handle_;
  args.program = &program;
  TRY(Call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api_,
                                                        args));  // the first call tells the size
  OptimizedProgram out;
  out.bytes.resize(program.code_size);
  program.code = out.bytes.data();
  TRY(Call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(api_, args));
  out.format.assign(program.format, program.format_size);
  return out;
}

}  // namespace ulmus::pjrt
