#include "data/tokenize_parquet.h"

#include <dlfcn.h>

namespace ulmus::data {
namespace {

// Found beside the program (its run path, see CMakeLists.txt). Stays loaded.
Result<ParquetFunction*> LoadModule() {
  void* module = dlopen(kParquetModule, RTLD_NOW | RTLD_LOCAL);
  void* function = module == nullptr ? nullptr : dlsym(module, kParquetFunction);
  if (function == nullptr) {
    return FailedPreconditionError(
        "Parquet is read by {}, which does not load: {}. It belongs beside the program and needs "
        "the wheel pyarrow, which `make build` fetches",
        kParquetModule, dlerror());
  }
  return reinterpret_cast<ParquetFunction*>(function);
}

}  // namespace

Result<std::unique_ptr<RecordReader>> OpenParquet(const Path& path, const RecordOptions& options,
                                                  const RecordPosition& from) {
  static const Result<ParquetFunction*>& open =
      *new Result<ParquetFunction*>(LoadModule());  // once; read by any thread
  if (!open.ok()) return open.status().WithContext(path.string());
  Result<std::unique_ptr<RecordReader>> reader = InternalError("not set");
  (**open)(path, options, from, reader);
  return reader;
}

}  // namespace ulmus::data
