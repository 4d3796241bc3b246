#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <vector>

namespace ulmus {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("wramup", "warmup"), 1);  // one swap
  EXPECT_EQ(EditDistance("ca", "abc"), 3);         // no edit inside a swap
}

TEST(NearestKey, FindsTyposAndRefusesStrangers) {
  const std::vector<std::string> keys = {"train.steps", "train.seed", "optim.lr_peak",
                                         "optim.warmup_steps"};
  EXPECT_EQ(NearestKey("train.step", keys), "train.steps");
  EXPECT_EQ(NearestKey("optim.lr_paek", keys), "optim.lr_peak");
  EXPECT_EQ(NearestKey("optim.warmup", keys), "optim.warmup_steps");
  EXPECT_EQ(NearestKey("tokenizer_file", keys), std::nullopt);
  EXPECT_EQ(NearestKey("x", std::vector<std::string>{"y"}), std::nullopt);
  EXPECT_EQ(NearestKey(std::string(100000, 'a'), keys), std::nullopt);
  EXPECT_EQ(NearestKey("a", {}), std::nullopt);
}

}  // namespace
}  // namespace ulmus
