#include "checkpoint/copy_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/testing/memory_source.h"

namespace ulmus::checkpoint {
namespace {

// Keeps what it receives.
class MemorySink : public TensorSink {
 public:
  Status Begin(const TensorInfo& tensor) override {
    names.push_back(tensor.name);
    bytes.emplace_back();
    return Status();
  }
  Status Append(std::span<const std::byte> piece) override {
    largest = std::max(largest, piece.size());
    if (fail_after-- == 0) return ResourceExhaustedError("full");
    bytes.back().insert(bytes.back().end(), piece.begin(), piece.end());
    return Status();
  }
  Status AddSideFile(std::string_view, std::string_view) override { return Status(); }
  Status Commit() override { return Status(); }

  template <class T>
  std::vector<T> Values(size_t i) const {
    std::vector<T> values(bytes[i].size() / sizeof(T));
    std::memcpy(values.data(), bytes[i].data(), bytes[i].size());
    return values;
  }
  std::vector<std::string> names;
  std::vector<std::vector<std::byte>> bytes;
  size_t largest = 0;
  int fail_after = -1;
};

MemorySource Source() {
  std::map<std::string, HostTensor> tensors;
  std::vector<float> weights;
  for (int i = 0; i < 12; ++i) weights.push_back(static_cast<float>(i) + 0.25f);
  tensors.emplace("w", HostTensor({4, 3}, std::span<const float>(weights)));
  tensors.emplace("ids", HostTensor({2}, std::span<const int64_t>(std::vector<int64_t>{1, -5})));
  tensors.emplace("none", HostTensor(TensorType{DType::kF32, {0, 3}}));
  return MemorySource(std::move(tensors));
}

TEST(CopyTensors, ConvertsFloatsAndLeavesIntegers) {
  const MemorySource source = Source();
  const std::vector<TensorCopy> copies = {{2, {"w", {DType::kBF16, {4, 3}}}},
                                          {0, {"ids", {DType::kI64, {2}}}},
                                          {1, {"none", {DType::kBF16, {0, 3}}}}};
  for (int64_t buffer : {4, 7, 16, 1 << 20}) {
    MemorySink sink;
    ASSERT_TRUE(CopyTensors(source, copies, sink, {.buffer_bytes = buffer}).ok());
    EXPECT_THAT(sink.names, testing::ElementsAre("w", "ids", "none"));
    EXPECT_EQ(sink.Values<BF16>(0)[11], BF16(11.25f));
    EXPECT_EQ(sink.bytes[0].size(), 24u);
    EXPECT_THAT(sink.Values<int64_t>(1), testing::ElementsAre(1, -5));
    EXPECT_TRUE(sink.bytes[2].empty());
    EXPECT_LE(sink.largest, std::max<size_t>(8, static_cast<size_t>(buffer)));
  }
}

TEST(CopyTensors, RowsAreCutOrAddedAsZeros) {
  const MemorySource source = Source();
  for (int64_t buffer : {4, 12, 20, 1 << 20}) {
    MemorySink sink;
    ASSERT_TRUE(CopyTensors(source,
                            std::vector<TensorCopy>{{2, {"cut", {DType::kF32, {2, 3}}}},
                                                    {2, {"padded", {DType::kF32, {6, 3}}}}},
                            sink, {.buffer_bytes = buffer})
                    .ok());
    EXPECT_THAT(sink.Values<float>(0), testing::ElementsAre(.25, 1.25, 2.25, 3.25, 4.25, 5.25));
    const std::vector<float> padded = sink.Values<float>(1);
    ASSERT_EQ(padded.size(), 18u);
    EXPECT_EQ(padded[11], 11.25f);
    for (size_t i = 12; i < 18; ++i) EXPECT_EQ(padded[i], 0) << i;
  }
}

TEST(CopyTensors, AnErrorOfTheSinkEndsIt) {
  const MemorySource source = Source();
  for (int after : {0, 1, 3}) {
    MemorySink sink;
    sink.fail_after = after;
    EXPECT_EQ(CopyTensors(source, std::vector<TensorCopy>{{2, {"w", {DType::kF32, {4, 3}}}}}, sink,
                          {.buffer_bytes = 4, .num_buffers = 2})
                  .code(),
              StatusCode::kResourceExhausted);
  }
}

class FailingSource : public MemorySource {
 public:
  FailingSource() : MemorySource(Source()) {}
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override {
    if (first >= 6) return DataLossError("damaged");
    return MemorySource::Read(index, first, out);
  }
};

TEST(CopyTensors, AnErrorOfTheSourceEndsItAfterWhatWasRead) {
  const FailingSource source;
  MemorySink sink;
  EXPECT_EQ(CopyTensors(source, std::vector<TensorCopy>{{2, {"w", {DType::kF32, {4, 3}}}}}, sink,
                        {.buffer_bytes = 12})
                .code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(sink.bytes[0].size(), 24u);
}

TEST(CopyTensors, StopsWhenAsked) {
  const MemorySource source = Source();
  MemorySink sink;
  int64_t reported = 0;
  const Status status =
      CopyTensors(source, std::vector<TensorCopy>{{2, {"w", {DType::kF32, {4, 3}}}}}, sink,
                  {.buffer_bytes = 4,
                   .progress = [&](int64_t bytes) { reported = bytes; },
                   .stop = [&] { return reported >= 8; }});
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(reported, 8);
}

// The largest float32 rounds up to infinity in bf16, too.
TEST(CopyTensors, AValueBeyondTheTargetTypeIsRefusedAndATypeThatHoldsItNamed) {
  for (const DType target : {DType::kF16, DType::kBF16}) {
    std::map<std::string, HostTensor> tensors;
    const std::vector<float> values = {1, std::numeric_limits<float>::max()};
    tensors.emplace("big", HostTensor({2}, std::span<const float>(values)));
    const MemorySource source(std::move(tensors));
    MemorySink sink;
    const Status status =
        CopyTensors(source, std::vector<TensorCopy>{{0, {"big", {target, {2}}}}}, sink);
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_EQ(status.message(), fmt::format("tensor \"big\": 1 finite values from element 0 on "
                                            "become infinite in {}; choose a type that holds them, "
                                            "such as f32, theirs",
                                            Name(target)));
  }
}

}  // namespace
}  // namespace ulmus::checkpoint
