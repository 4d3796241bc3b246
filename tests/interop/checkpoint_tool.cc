// Writes and reads checkpoints for tests/interop/checkpoint_interop.py.
//   checkpoint_tool write DST PLAIN|ZSTD     element k of every tensor is k % 100 (bool: k % 2)
//   checkpoint_tool read DIR                 "name dtype shape sha256" of each zarr array, a line
//   each
#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "checkpoint/native.h"
#include "checkpoint/zarr.h"
#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {
namespace {

HostTensor Counting(DType dtype, const Shape& shape) {
  HostTensor tensor(TensorType{dtype, shape});
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.Set(i, static_cast<double>(i % (dtype == DType::kBool ? 2 : 100)));
  return tensor;
}

Status Write(const Path& dst, bool zstd) {
  std::vector<TensorInfo> infos;
  for (const DType dtype : kAllDTypes)
    infos.push_back({fmt::format("type.{}", Name(dtype)), {dtype, {3, 5}}});
  infos.push_back({"model.embed_tokens.weight", {DType::kF32, {1031, 2048}}});
  infos.push_back({"exp_avg.model.embed_tokens.weight", {DType::kF32, {1031, 2048}}});
  infos.push_back({"step", {DType::kI32, Shape()}});
  infos.push_back({"sharded", {DType::kBF16, {10, 6}}});
  NativeWriterOptions options{.step = 3};
  if (zstd) options.zstd_level = 1;
  const auto writer = TRY(NativeWriter::Create(dst, infos, options));
  for (const TensorInfo& info : infos) {
    const HostTensor tensor = Counting(info.type.dtype, info.type.shape);
    if (info.name != "sharded") {
      TRY(writer->Begin(info));
      TRY(writer->Append(tensor.bytes()));
      continue;
    }
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        const Shape clipped{std::min<int64_t>(4, 10 - 4 * row), 3};
        const auto stream = TRY(writer->BeginChunk(info.name, {4, 3}, {row, column}));
        TRY(stream->Append(CopyBlock(tensor, {4 * row, 3 * column}, clipped).bytes()));
      }
    }
  }
  TRY(writer->SetTrainState(R"({"step": 3})"));
  TRY(writer->AddSideFile("config.json", "{}"));
  return writer->Commit();
}

Status Read(const Path& dir) {
  const LocalReadStore store(dir);
  ReadCache cache;
  for (const auto& [key, size] : TRY(store.List())) {
    if (!key.ends_with("/zarr.json")) continue;
    const std::string name = key.substr(0, key.rfind('/'));
    const ArrayReader array =
        TRY(ArrayReader::Open(store, cache, name, {.absent_is_damage = false}));
    std::vector<std::byte> bytes(static_cast<size_t>(array.type().size_bytes()));
    TRY(array.ReadRange(0, bytes));
    fmt::print("{} {} {} {}\n", name, Name(array.type().dtype), array.type().shape.ToString(),
               Sha256Hex(bytes));
  }
  return Status();
}

Status Main(std::span<char*> args) {
  const std::string_view command = args.size() > 1 ? args[1] : "";
  if (command == "write" && args.size() == 4)
    return Write(args[2], std::string_view(args[3]) == "ZSTD");
  if (command == "read" && args.size() == 3) return Read(args[2]);
  return InvalidArgumentError("usage: checkpoint_tool write DST PLAIN|ZSTD | read DIR");
}

}  // namespace
}  // namespace ulmus::checkpoint

int main(int argc, char** argv) {
  const ulmus::Status status = ulmus::checkpoint::Main(std::span(argv, static_cast<size_t>(argc)));
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return ulmus::ExitCodeFor(status);
}
