// A dataset whose tokens are a function of their position, for tests and benchmarks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/check.h"
#include "data/instance_source.h"

namespace ulmus::data {

struct FakeSourceOptions {
  int64_t num_instances = 100;
  int64_t sequence_length = 8;
  int64_t max_target_sequence_length = 0;  // 0: the sequence length
  std::string fingerprint = "fake";
  int64_t failing_instance = -1;  // kDataLoss when read
  // Token t of instance i; by default i * T + t, modulo 2^30.
  std::function<int32_t(int64_t, int64_t)> token = nullptr;
};

class FakeSource : public InstanceSource {
 public:
  explicit FakeSource(FakeSourceOptions options) : options_(std::move(options)) {}

  int64_t num_instances() const override { return options_.num_instances; }
  int64_t sequence_length() const override { return options_.sequence_length; }
  int64_t max_target_sequence_length() const override {
    return options_.max_target_sequence_length != 0 ? options_.max_target_sequence_length
                                                    : options_.sequence_length;
  }
  const std::string& fingerprint() const override { return options_.fingerprint; }
  std::string_view type() const override { return "fsl"; }

  Status Read(int64_t instance, const InstanceRow& row) const override {
    CHECK(instance >= 0 && instance < options_.num_instances, "instance {}", instance);
    if (instance == options_.failing_instance)
      return DataLossError("fake file: instance {} is damaged", instance);
    ++reads_;
    FillTokens(instance, row.tokens);
    std::fill(row.loss_mask.begin(), row.loss_mask.end(), uint8_t{1});
    std::fill(row.segment_ids.begin(), row.segment_ids.end(), 1);
    for (size_t t = 0; t < row.positions.size(); ++t) row.positions[t] = static_cast<int32_t>(t);
    return {};
  }
  Result<InstanceOrigin> Describe(int64_t instance) const override {
    return InstanceOrigin{
        .source = "fake",
        .ranges = {{"fake", instance * options_.sequence_length, options_.sequence_length}}};
  }

  int64_t num_reads() const { return reads_; }

 private:
  // No call per token unless asked: benchmarks time the loader, not this.
  void FillTokens(int64_t instance, std::span<int32_t> tokens) const {
    const auto first = static_cast<uint64_t>(instance * options_.sequence_length);
    for (size_t t = 0; t < tokens.size() && !options_.token; ++t)
      tokens[t] = static_cast<int32_t>((first + t) % (1u << 30));
    for (size_t t = 0; t < tokens.size() && options_.token; ++t)
      tokens[t] = options_.token(instance, static_cast<int64_t>(t));
  }
  FakeSourceOptions options_;
  mutable std::atomic<int64_t> reads_ = 0;
};

}  // namespace ulmus::data
