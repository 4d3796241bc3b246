#include "pjrt/run.h"

#include "pjrt/hlo_dump.h"

namespace ulmus::pjrt {

Result<std::vector<HostTensor>> RunOnce(Client& client, const Program& program,
                                        std::span<const HostTensor> args,
                                        const CompileOptions& options) {
  const std::unique_ptr<Executable> executable = TRY(client.Compile(program, options));
  if (static_cast<int64_t>(args.size()) != executable->num_arguments()) {
    return InvalidArgumentError("{}: found {} arguments, expected {}", program.name, args.size(),
                                executable->num_arguments());
  }
  std::vector<ShardedArray> arrays;
  for (size_t i = 0; i < args.size(); ++i) {
    Result<ShardedArray> array = ShardedArray::FromHost(
        client, args[i], executable->argument_layout(static_cast<int64_t>(i)));
    if (!array.ok())
      return array.error().WithContext(
          fmt::format("{}: argument {} '{}'", program.name, i, program.arguments[i].name));
    arrays.push_back(std::move(*array));
  }
  std::vector<ShardedArray*> pointers;
  for (ShardedArray& array : arrays) pointers.push_back(&array);
  const std::vector<ShardedArray> results = TRY(executable->Execute(pointers));
  TRY(executable->Wait());
  std::vector<HostTensor> tensors;
  for (const ShardedArray& result : results) tensors.push_back(TRY(result.ToHost()));
  return tensors;
}

Result<std::string> DumpOptimizedHlo(Client& client, const Program& program,
                                     CompileOptions options) {
  return ReadHloDump(std::move(options), [&](const CompileOptions& dumping) {
    return client.Compile(program, dumping).status();
  });
}

}  // namespace ulmus::pjrt
