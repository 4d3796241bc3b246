#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace ulmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Standard error while `work` runs.
template <class Work>
std::string StderrOf(Work work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, MarksWarningsAndErrorsAndDropsLowLevels) {
  const LogLevel before = MinLogLevel();
  SetMinLogLevel(LogLevel::kInfo);
  const std::string text = StderrOf([] {
    LogDebug("hidden {}", 1);
    LogInfo("step {}", 2);
    LogWarning("slow");
    LogError("broken: {}", "disk");
  });
  SetMinLogLevel(before);
  EXPECT_EQ(text, "step 2\nwarning: slow\nerror: broken: disk\n");
}

TEST(Log, ForeignNamesDoNotReachTheTerminalRaw) {
  EXPECT_EQ(StderrOf([] { LogWarning("{}: odd", "\x1b[2J\u202etxt"); }),
            "warning: \\x1b[2J\\u202etxt: odd\n");
}

TEST(Log, LevelsParseByName) {
  EXPECT_EQ(*ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(*ParseLogLevel("error"), LogLevel::kError);
  EXPECT_THAT(ParseLogLevel("loud").status().message(), HasSubstr("\"loud\""));
}

TEST(Log, AppendsToTheFileToo) {
  const TempDir dir;
  const Path path = dir.path() / "log.txt";
  ASSERT_EQ(WriteFileAtomic(path, "earlier\n"), Status());
  ASSERT_EQ(SetLogFile(path), Status());
  StderrOf([] { LogWarning("x"); });
  CloseLogFile();
  StderrOf([] { LogWarning("y"); });
  EXPECT_EQ(*ReadFile(path), "earlier\nwarning: x\n");
  EXPECT_EQ(SetLogFile(dir.path() / "no/log.txt").code(), StatusCode::kNotFound);
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  constexpr int kThreads = 4, kLines = 50;
  const std::string text = StderrOf([] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < kLines; ++i)
          LogError("{}", std::string(100, static_cast<char>('a' + t)));
      });
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kThreads * kLines);
  for (int t = 0; t < kThreads; ++t) {
    const std::string line = "error: " + std::string(100, static_cast<char>('a' + t)) + "\n";
    int found = 0;
    for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1))
      ++found;
    EXPECT_EQ(found, kLines);
  }
}

struct FakeScreen {
  double now_s = 100;
  std::vector<std::string> drawn;
  ProgressOptions Options(bool terminal) {
    return {.unit = "files",
            .terminal = terminal,
            .now_s = [this] { return now_s; },
            .draw = [this](std::string_view text) { drawn.emplace_back(text); }};
  }
};

TEST(Progress, PrintsPlainLinesAtMostEveryIntervalWithoutATerminal) {
  FakeScreen screen;
  {
    Progress progress("index", 100, screen.Options(false));
    for (int i = 1; i <= 50; ++i) {
      screen.now_s += 0.5;
      progress.Add(1);
    }
  }
  EXPECT_THAT(screen.drawn, ElementsAre("index: 4% 4/100 files, 2 files/s, 48s left\n",
                                        "index: 24% 24/100 files, 2 files/s, 38s left\n",
                                        "index: 44% 44/100 files, 2 files/s, 28s left\n",
                                        "index: 50 files in 25s\n"));
}

TEST(Progress, DrawsABarWithRemainingTimeOnATerminal) {
  FakeScreen screen;
  Progress progress("index", 7200, screen.Options(true));
  screen.now_s += 10;
  progress.Update(1800);
  EXPECT_THAT(
      screen.drawn,
      ElementsAre(
          "\r\x1b[Kindex: [======                  ] 25% 1.8k/7.2k files, 180 files/s, 30s left"));
}

TEST(Progress, SaysNothingAboutQuickWork) {
  FakeScreen screen;
  {
    Progress progress("index", 10, screen.Options(true));
    screen.now_s += 1;
    progress.Update(10);
  }
  EXPECT_THAT(screen.drawn, IsEmpty());
}

TEST(Progress, SurvivesZeroAndUnknownTotals) {
  FakeScreen screen;
  Progress progress("read", 0, screen.Options(false));
  screen.now_s += 3;
  progress.Update(0);
  screen.now_s += 4000;
  progress.Update(2500000);
  EXPECT_THAT(screen.drawn,
              ElementsAre("read: 0 files, 0 files/s\n", "read: 2.5M files, 624.5 files/s\n"));
}

}  // namespace
}  // namespace ulmus
