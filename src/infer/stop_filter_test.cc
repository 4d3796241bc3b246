#include "infer/stop_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace ulmus::infer {
namespace {

TEST(StopFilter, HoldsBackWhatMayBeginAStopString) {
  StopFilter filter({"\n\n", "END"});
  EXPECT_EQ(filter.Add("one E"), "one ");
  EXPECT_EQ(filter.Add("N"), "");
  EXPECT_EQ(filter.Add("T\n"), "ENT");
  EXPECT_EQ(filter.Add("two"), "\ntwo");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.Add(" E"), " ");
  EXPECT_EQ(filter.Add("ND of"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.Add("more"), "");
  EXPECT_EQ(filter.Finish(), "");
}

TEST(StopFilter, FinishShowsWhatWasHeldBack) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.Add("the EN"), "the ");
  EXPECT_EQ(filter.Finish(), "EN");
}

// Every way to cut the text into pieces shows the same.
TEST(StopFilter, DoesNotDependOnTheBordersOfPieces) {
  const std::string text = "aaab aab ab";
  for (const auto& [stop, expected] : std::vector<std::pair<std::string, std::string>>{
           {"aab", "a"}, {"ab a", "aa"}, {"b", "aaa"}, {"zz", text}, {"", text}, {text, ""}}) {
    for (int cuts = 0; cuts < 1 << (text.size() - 1); ++cuts) {
      StopFilter filter({stop});
      std::string shown, piece;
      for (size_t i = 0; i < text.size(); ++i) {
        piece += text[i];
        if ((cuts >> i & 1) == 0 && i + 1 < text.size()) continue;
        shown += filter.Add(piece);
        piece.clear();
      }
      shown += filter.Finish();
      ASSERT_EQ(shown, expected) << "stop '" << stop << "' cuts " << cuts;
    }
  }
}

TEST(StopFilter, TheStopStringThatIsCompleteFirstCounts) {
  StopFilter filter({"abcd", "bc"});
  EXPECT_EQ(filter.Add("xabc"), "xa");
  EXPECT_TRUE(filter.stopped());
  StopFilter together({"c", "abc"});
  EXPECT_EQ(together.Add("xab"), "x");
  EXPECT_EQ(together.Add("c"), "");
  EXPECT_TRUE(together.stopped());
}

}  // namespace
}  // namespace ulmus::infer
