#include "residual_mlp/text.h"

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/random.h"

namespace ulmus::residual_mlp {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// A mistake in data.paths is a mistake in the recipe, whatever the system calls it.
Result<std::string> ReadText(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return InvalidArgumentError(
        "data.paths: there is no file '{}' in '{}'; run from the folder that holds it or name a "
        "text "
        "with --set 'data.paths=[\"file\"]'",
        path, std::filesystem::current_path(error).string());
  }
  if (!std::filesystem::is_regular_file(status))
    return InvalidArgumentError("data.paths: '{}' is not a regular file", path);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (size > kMaxFileBytes) {
    return InvalidArgumentError("data.paths: '{}' has {} bytes; this example reads at most {}",
                                path, size, kMaxFileBytes);
  }
  Result<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return InvalidArgumentError("data.paths: {}", text.error().message());
  return text;
}

}  // namespace

Text::Text(const Config& config, std::string bytes)
    : batch_size_(config.train.batch_size),
      context_(config.model.context_bytes),
      seed_(config.train.seed),
      bytes_(std::move(bytes)),
      held_out_start_(num_bytes() - num_bytes() / 10) {}

Result<Text> Text::Load(const Config& config) {
  std::string bytes;
  for (const std::string& path : config.data.paths) bytes += TRY(ReadText(path));
  Text text(config, std::move(bytes));
  const int64_t least = (config.model.context_bytes + 1) * 10;
  if (text.num_bytes() < least) {
    return InvalidArgumentError("data.paths: {} bytes of text; {} context bytes need at least {}",
                                text.num_bytes(), config.model.context_bytes, least);
  }
  return text;
}

TextBatch Text::Cut(const std::vector<int64_t>& starts) const {
  TextBatch batch{HostTensor(TensorType{DType::kI32, {batch_size_, context_}}),
                  HostTensor(TensorType{DType::kI32, {batch_size_}})};
  const auto tokens = batch.tokens.values<int32_t>();
  const auto labels = batch.labels.values<int32_t>();
  for (size_t row = 0; row < starts.size(); ++row) {
    const auto* window = reinterpret_cast<const uint8_t*>(bytes_.data()) + starts[row];
    for (int64_t i = 0; i < context_; ++i)
      tokens[row * static_cast<size_t>(context_) + static_cast<size_t>(i)] = window[i];
    labels[row] = window[context_];
  }
  return batch;
}

TextBatch Text::TrainBatch(int64_t step) const {
  const RandomStream stream(static_cast<uint64_t>(seed_), static_cast<uint64_t>(step), "data",
                            "window");
  const auto num_windows = static_cast<uint64_t>(held_out_start_ - context_);
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < batch_size_; ++row) {
    starts.push_back(static_cast<int64_t>(stream.Word(static_cast<uint64_t>(row)) % num_windows));
  }
  return Cut(starts);
}

TextBatch Text::HeldOutBatch() const {
  const int64_t num_windows = num_bytes() - held_out_start_ - context_;
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < batch_size_; ++row)
    starts.push_back(held_out_start_ + row * num_windows / batch_size_);
  return Cut(starts);
}

}  // namespace ulmus::residual_mlp
