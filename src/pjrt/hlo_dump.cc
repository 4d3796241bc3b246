#include "pjrt/hlo_dump.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;

// A folder of its own that goes with the object.
struct TemporaryFolder {
  fs::path path;
  ~TemporaryFolder() {
    std::error_code error;
    if (!path.empty()) fs::remove_all(path, error);
  }
};

}  // namespace

Result<std::string> ReadHloDump(CompileOptions options,
                                const std::function<Status(const CompileOptions&)>& compile) {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "ulmus_hlo_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    return UnavailableError("cannot make a temporary folder {}", name);
  const TemporaryFolder folder{name};
  options.overrides["xla_dump_to"] = name;
  options.overrides["xla_dump_hlo_as_text"] = true;
  TRY(compile(options));
  fs::path best;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path, error)) {
    if (!entry.path().string().ends_with("after_optimizations.txt")) continue;
    if (best.empty() || entry.file_size(error) > fs::file_size(best, error)) best = entry.path();
  }
  if (best.empty())
    return NotFoundError("the compiler wrote no *after_optimizations.txt into {}", name);
  std::ifstream in(best);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace ulmus::pjrt
