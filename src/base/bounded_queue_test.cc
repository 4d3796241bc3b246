#include "base/bounded_queue.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace ulmus {
namespace {

using namespace std::chrono_literals;

TEST(BoundedQueue, EveryValueArrivesOnceWithManyThreads) {
  constexpr int kThreads = 4, kEach = 2000;
  BoundedQueue<int> queue(7);
  std::vector<std::vector<int>> popped(kThreads);
  {
    std::vector<std::jthread> consumers;
    for (int t = 0; t < kThreads; ++t)
      consumers.push_back(StartThread("consumer", [&queue, &mine = popped[static_cast<size_t>(t)]] {
        while (std::optional<int> value = queue.Pop()) mine.push_back(*value);
      }));
    {
      std::vector<std::jthread> producers;
      for (int t = 0; t < kThreads; ++t)
        producers.push_back(StartThread("producer", [&queue, t] {
          for (int i = 0; i < kEach; ++i) EXPECT_TRUE(queue.Push(t * kEach + i));
        }));
    }
    queue.Close();
  }
  std::vector<int> all;
  for (const auto& part : popped) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
  for (int i = 0; i < kThreads * kEach; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(BoundedQueue, KeepsOrder) {
  BoundedQueue<int> queue(2);
  const std::jthread producer = StartThread("producer", [&queue] {
    for (int i = 0; i < 100; ++i) queue.Push(i);
    queue.Close();
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.Pop(), i);
  EXPECT_EQ(queue.Pop(), std::nullopt);
  EXPECT_TRUE(queue.drained());
}

TEST(BoundedQueue, CloseDrainsThenEnds) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  queue.Close();
  queue.Close();
  EXPECT_FALSE(queue.Push(3));
  EXPECT_FALSE(queue.drained());
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
  EXPECT_EQ(queue.PopFor(1h), std::nullopt);  // does not wait
}

TEST(BoundedQueue, CloseWakesThoseWhoWait) {
  BoundedQueue<int> full(1), empty(1);
  full.Push(0);
  bool pushed = true;
  std::optional<int> popped = 1;
  {
    const std::jthread pusher = StartThread("pusher", [&] { pushed = full.Push(1); });
    const std::jthread popper = StartThread("popper", [&] { popped = empty.Pop(); });
    std::this_thread::sleep_for(5ms);
    full.Close();
    empty.Close();
  }
  EXPECT_FALSE(pushed);
  EXPECT_EQ(popped, std::nullopt);
}

TEST(BoundedQueue, TimeoutsKeepTheValueAndAreCounted) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_EQ(queue.PopFor(5ms), std::nullopt);
  EXPECT_GE(queue.pop_wait_s(), 0.004);
  auto first = std::make_unique<int>(1), second = std::make_unique<int>(2);
  EXPECT_TRUE(queue.PushFor(first, 5ms));
  EXPECT_EQ(first, nullptr);
  EXPECT_FALSE(queue.PushFor(second, 5ms));
  EXPECT_NE(second, nullptr);
  EXPECT_GE(queue.push_wait_s(), 0.004);
  EXPECT_EQ(**queue.PopFor(5ms), 1);
}

TEST(Thread, CarriesItsNameCutToFifteenBytes) {
  char name[32] = {};
  {
    const std::jthread thread = StartThread("a-very-long-thread-name",
                                            [&] { pthread_getname_np(pthread_self(), name, 32); });
  }
  EXPECT_STREQ(name, "a-very-long-thr");
}

}  // namespace
}  // namespace ulmus
