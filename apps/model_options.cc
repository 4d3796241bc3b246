#include "apps/model_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "pjrt/plugin.h"

namespace ulmus::apps {
namespace {

// The words of `text` between spaces and commas.
std::vector<std::string_view> Words(std::string_view text) {
  constexpr std::string_view kSeparators = " \t\r\n,";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kSeparators); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSeparators, end);
  }
  return words;
}

template <class T>
bool ParseNumber(std::string_view word, T& value) {
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  return result.ec == std::errc() && result.ptr == word.data() + word.size();
}

}  // namespace

void AddModelOptions(CLI::App& command, ModelOptions& options) {
  command
      .add_option(
          "CKPT", options.checkpoint,
          "Checkpoint: a Hugging Face directory, a checkpoint directory, or a run directory "
          "(its latest)")
      ->required();
  command.add_option("--dtype", options.dtype, "Compute in f32 or bf16")->capture_default_str();
  command.add_option("--plugin", options.plugin, "PJRT plugin: path, or name of a wheel");
}

Result<DType> ComputeDType(const std::string& name) {
  const Result<DType> dtype = ParseDType(name);
  if (dtype.ok() && (*dtype == DType::kF32 || *dtype == DType::kBF16)) return *dtype;
  return InvalidArgumentError("--dtype is '{}', expected f32 or bf16", name);
}

Result<Mesh> ParseMesh(const std::string& text) {
  std::vector<MeshAxis> axes;
  for (const std::string_view word : Words(text)) {
    const size_t equals = word.find('=');
    MeshAxis axis{std::string(word.substr(0, equals)), 0};
    const bool known = axis.name == "data" || axis.name == "fsdp" || axis.name == "tensor";
    const bool again = std::ranges::find(axes, axis.name, &MeshAxis::name) != axes.end();
    if (!known || again || equals == std::string_view::npos ||
        !ParseNumber(word.substr(equals + 1), axis.size) || axis.size < 1 || axis.size > 4096) {
      return InvalidArgumentError(
          "--mesh: '{}', expected axes data, fsdp and tensor with their sizes, each once: "
          "\"fsdp=2,tensor=4\"",
          word);
    }
    axes.push_back(std::move(axis));
  }
  return Mesh(std::move(axes));
}

Result<std::unique_ptr<pjrt::Client>> MakeClient(const std::string& plugin, const Mesh& mesh) {
  auto found = pjrt::LoadDefaultCpuPlugin({.flag = plugin, .recipe = ""});
  if (!plugin.empty() && found.status().code() == StatusCode::kNotFound)
    return InvalidArgumentError("{}", found.error().message());
  auto loaded = TRY(std::move(found));
  return pjrt::Client::Create(std::move(loaded),
                              {.num_devices = mesh.num_devices(), .options = {}});
}

CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  const auto check = [=](const std::string& text) -> std::string {
    uint64_t value = 0;
    if (ParseNumber(text, value) && value >= least && value <= most) return "";
    return fmt::format("'{}', expected a whole number from {} to {}", text, least, most);
  };
  return {check, ""};
}

CLI::Validator NumberUpTo(double most) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (ParseNumber(text, value) && value >= 0 && value <= most) return "";
    const std::string bound = most < std::numeric_limits<double>::max()
                                  ? fmt::format("a number from 0 to {}", most)
                                  : "a finite number >= 0";
    return fmt::format("'{}', expected {}", text, bound);
  };
  return {check, ""};
}

Result<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string_view word : Words(text)) {
    int32_t id = 0;
    if (!ParseNumber(word, id) || id < 0)
      return InvalidArgumentError("--ids: '{}' is no token id; expected numbers like \"1 2 3\"",
                                  word);
    ids.push_back(id);
  }
  return ids;
}

}  // namespace ulmus::apps
