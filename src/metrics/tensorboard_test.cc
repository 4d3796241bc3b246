#include "metrics/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "metrics/record_testing.h"

namespace ulmus::metrics {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Events : public testing::Test {
 protected:
  std::unique_ptr<Sink> Open(int64_t step) {
    Result<std::unique_ptr<Sink>> sink = TensorBoardSink::Open(folder_.path(), step);
    CHECK(sink.ok(), "{}", sink.error().message());
    return std::move(*sink);
  }
  void WriteSteps(int64_t resume, int64_t last) {
    ASSERT_EQ(RepairEvents(folder_.path(), resume), Status());
    const std::unique_ptr<Sink> sink = Open(resume);
    for (int64_t step = resume + 1; step <= last; ++step)
      ASSERT_EQ(sink->Write(TestStep(step)), Status());
  }
  std::vector<Path> Files() const { return *ListEventFiles(folder_.path()); }
  std::vector<Event> Read(const Path& path) const {
    std::vector<Event> events;
    EXPECT_EQ(ReadEvents(path,
                         [&](const Event& event) {
                           events.push_back(event);
                           return Status();
                         }),
              Status());
    return events;
  }

  const TempDir folder_;
};

TEST_F(Events, HoldStepsAndEvaluations) {
  const std::unique_ptr<Sink> sink = Open(0);
  StepRecord step = TestStep(1);
  step.norms = {{"grad_norm/model.layers.0", 2.5}};
  ASSERT_EQ(sink->Write(step), Status());
  ASSERT_EQ(sink->Write(EvalRecord{.step = 1, .set = "bible", .loss = {92, 10}, .wall_time_s = 5}),
            Status());
  ASSERT_EQ(sink->Write(EventRecord{.step = 1, .name = "save", .text = ""}), Status());
  ASSERT_THAT(Files(), SizeIs(1));
  const std::vector<Event> events = Read(Files()[0]);
  ASSERT_THAT(events, SizeIs(4));  // version, start, step, evaluation
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].wall_time_s, step.wall_time_s);
  EXPECT_THAT(events[2].values,
              Contains(NamedValue{"train/loss", double{static_cast<float>(step.loss)}}));
  EXPECT_THAT(events[2].values, Contains(NamedValue{"norms/grad_norm/model.layers.0", 2.5}));
  EXPECT_THAT(events[2].values, Contains(Field(&NamedValue::name, "derived/perplexity")));
  EXPECT_THAT(events[2].values, Not(Contains(Field(&NamedValue::name, "speed/mfu"))));
  EXPECT_EQ(events[3].values,
            (std::vector<NamedValue>{{"heldout/bible", double{static_cast<float>(9.2)}}}));
}

// The first record of every event file, from the definition of the format: its wall time is all
// that differs between files.
TEST_F(Events, RecordsAreFramedAsTfRecords) {
  Open(0).reset();
  const std::string bytes = *ReadFile(Files()[0]);
  const std::string length("\x18\0\0\0\0\0\0\0", 8);
  ASSERT_GE(bytes.size(), 40u);
  EXPECT_EQ(bytes.substr(0, 8), length);
  const std::string payload = bytes.substr(12, 24);
  EXPECT_EQ(payload[0], 0x09);  // field 1, eight bytes
  EXPECT_EQ(payload.substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  const auto crc_at = [&](size_t at) {
    uint32_t crc = 0;
    for (size_t k = 0; k < 4; ++k)
      crc |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + k])) << (8 * k);
    return crc;
  };
  EXPECT_EQ(crc_at(8), MaskCrc32c(Crc32c(length)));
  EXPECT_EQ(crc_at(36), MaskCrc32c(Crc32c(payload)));
}

// B52.
TEST_F(Events, EachStepIsShownOnceAfterAKill) {
  WriteSteps(0, 25);
  WriteSteps(20, 40);
  EXPECT_THAT(Files(), SizeIs(2));
  EXPECT_EQ(ShownSteps(folder_.path()), OneTo(40));
  // Also to a reader that does not know the rule of session starts.
  std::vector<int64_t> steps;
  for (const Path& path : Files())
    for (const Event& event : Read(path))
      if (!event.values.empty()) steps.push_back(event.step);
  EXPECT_EQ(steps, OneTo(40));
}

// A reader that watched the run has steps 21-25 in memory and must hear that they are void; step 20
// is good and must stay.
TEST_F(Events, ALiveReaderForgetsExactlyWhatIsRepeated) {
  WriteSteps(0, 25);
  std::vector<int64_t> shown = ShownSteps(folder_.path());
  WriteSteps(20, 22);
  for (const Event& event : Read(Files().back())) {
    if (event.session_start) std::erase_if(shown, [&](int64_t step) { return step >= event.step; });
    if (!event.values.empty()) shown.push_back(event.step);
  }
  EXPECT_EQ(shown, OneTo(22));
}

TEST_F(Events, FilesSortInTheOrderOfTheStarts) {
  std::vector<Path> made;
  for (int k = 0; k < 5; ++k) {
    Open(0).reset();
    const std::vector<Path> files = Files();
    for (const Path& path : files)
      if (std::find(made.begin(), made.end(), path) == made.end()) made.push_back(path);
    EXPECT_EQ(files, made) << "start " << k << " within one second";
  }
}

TEST_F(Events, TornRecordIsPassedOverAndCut) {
  const std::unique_ptr<Sink> sink = Open(0);
  const Path path = Files()[0];
  for (int64_t step : {1, 2}) ASSERT_EQ(sink->Write(TestStep(step)), Status());
  const std::string two = *ReadFile(path);
  ASSERT_EQ(sink->Write(TestStep(3)), Status());
  const std::string whole = *ReadFile(path);
  for (size_t size = two.size(); size < whole.size(); size += 29) {
    PutFile(path, whole.substr(0, size));
    ASSERT_EQ(ShownSteps(folder_.path()), OneTo(2)) << size;
    ASSERT_EQ(RepairEvents(folder_.path(), 2), Status());
    ASSERT_EQ(*ReadFile(path), two) << size;
  }
}

TEST_F(Events, EveryFlippedBitIsNoticed) {
  WriteSteps(0, 1);
  const Path path = Files()[0];
  const std::string whole = *ReadFile(path);
  const size_t num_events = Read(path).size();
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    PutFile(path, bytes);
    size_t seen = 0;
    const Status read = ReadEvents(path, [&](const Event&) {
      ++seen;
      return Status();
    });
    ASSERT_EQ(read.code(), StatusCode::kDataLoss) << at;
    ASSERT_LT(seen, num_events) << at;
    ASSERT_THAT(read.message(), HasSubstr("record at byte "));
  }
  const Status repair = RepairEvents(folder_.path(), 1);
  EXPECT_EQ(repair.code(), StatusCode::kDataLoss);
  EXPECT_THAT(repair.message(), HasSubstr("remove the file"));
}

TEST_F(Events, AHugeLengthIsRefusedBeforeMemoryIsTaken) {
  const uint64_t size = uint64_t{1} << 62;
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  const uint32_t crc = MaskCrc32c(Crc32c(bytes));
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  const Path path = folder_.path() / "events.out.tfevents.1";
  PutFile(path, bytes);
  const Status read = ReadEvents(path, [](const Event&) { return Status(); });
  EXPECT_EQ(read.code(), StatusCode::kDataLoss);
  EXPECT_THAT(read.message(), HasSubstr("is above"));
}

TEST_F(Events, FullDiskLosesNothingWrittenBefore) {
  const std::unique_ptr<Sink> sink = Open(0);
  ASSERT_EQ(sink->Write(TestStep(1)), Status());
  const std::string before = *ReadFile(Files()[0]);
  {
    const FileSizeLimit limit(static_cast<int64_t>(before.size()) + 50);
    EXPECT_EQ(sink->Write(TestStep(2)).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(*ReadFile(Files()[0]), before);
  }
  ASSERT_EQ(sink->Write(TestStep(2)), Status());
  EXPECT_EQ(ShownSteps(folder_.path()), OneTo(2));
}

TEST_F(Events, ALossThatIsNotFiniteIsShownAsSuch) {
  const std::unique_ptr<Sink> sink = Open(0);
  StepRecord record = TestStep(1);
  record.loss = std::nan("");
  ASSERT_EQ(sink->Write(record), Status());
  const std::vector<Event> events = Read(Files()[0]);
  for (const NamedValue& value : events.back().values) {
    if (value.name == "train/loss") {
      EXPECT_TRUE(std::isnan(value.value));
    }
  }
}

}  // namespace
}  // namespace ulmus::metrics
