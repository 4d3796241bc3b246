#include "pjrt/errors.h"

#include <gtest/gtest.h>

namespace ulmus::pjrt {
namespace {

TEST(CleanMessage, DropsTheVersionSentenceAndSourceTraces) {
  EXPECT_EQ(CleanMessage("-:3:10: error: custom op 'stablehlo.nosuch' is unknown\n"
                         "<unknown>:0: error: Failed to parse using StableHLO v1.20.0, this could "
                         "indicate forward incompatibility, >12w old\n\n"),
            "-:3:10: error: custom op 'stablehlo.nosuch' is unknown");
  EXPECT_EQ(CleanMessage("No such thing\n\n=== Source Location Trace: ===\nxla/pjrt/foo.cc:12\n"),
            "No such thing");
  EXPECT_EQ(CleanMessage("It broke.\n*** Begin stack trace ***\n0x1234\n*** End stack trace ***\n"),
            "It broke.");
  EXPECT_EQ(CleanMessage("Custom emitter for x not found\n\t\n\nSuspected Python Code Location:\n  "
                         "<no source information>"),
            "Custom emitter for x not found");
  EXPECT_EQ(CleanMessage("two\nlines"), "two\nlines");
  EXPECT_EQ(CleanMessage(""), "");
}

TEST(MakeStatus, CodesFollowTheTextWhereThePluginsAreVague) {
  EXPECT_EQ(MakeStatus(2, "-:3:10: error: unknown op").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeStatus(2, "No such compile option: 'x'").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeStatus(13, "While setting option xla_y, 'hello' is not a valid bool value.").code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeStatus(2, "XLA:TPU compile permanent error. CompileTimeHbmOom: exceeds").code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(MakeStatus(5, "-:12:3").code(), StatusCode::kNotFound);  // no parser error
  EXPECT_EQ(MakeStatus(5, "gone").code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeStatus(99, "new code").code(), StatusCode::kUnknown);
  EXPECT_EQ(MakeStatus(13, "").message(), "the plugin gave no message");
}

}  // namespace
}  // namespace ulmus::pjrt
