// Part of every test program with the label "plugin": ends the shared clients while the plugins
// still live.
#include <gtest/gtest.h>

#include "pjrt/testing.h"

namespace {

class ReleaseClients : public testing::Environment {
 public:
  void TearDown() override { ulmus::pjrt::ReleaseSharedClients(); }
};

[[maybe_unused]] const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new ReleaseClients);  // GoogleTest owns it

}  // namespace
