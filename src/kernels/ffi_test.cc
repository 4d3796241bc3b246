// The wrapper every handler goes through, called as a plugin calls it.
#include "kernels/ffi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/table.h"

namespace ulmus::kernels {
namespace {

std::string g_message;

XLA_FFI_Error* KeepMessage(XLA_FFI_Error_Create_Args* args) {
  g_message = args->message;
  static int error;
  return reinterpret_cast<XLA_FFI_Error*>(&error);
}

constexpr XLA_FFI_Handler* kThrowsText =
    +[](XLA_FFI_CallFrame*) -> XLA_FFI_Error* { throw std::runtime_error("what it says"); };
constexpr XLA_FFI_Handler* kThrowsBadAlloc =
    +[](XLA_FFI_CallFrame*) -> XLA_FFI_Error* { throw std::bad_alloc(); };
constexpr XLA_FFI_Handler* kThrowsInt = +[](XLA_FFI_CallFrame*) -> XLA_FFI_Error* {
  throw 5;
};  // NOLINT(bugprone-std-exception-baseclass): that is the test

TEST(Portable, ExceptionsBecomeErrors) {
  XLA_FFI_Api api = {};
  api.XLA_FFI_Error_Create = KeepMessage;
  XLA_FFI_CallFrame frame = {};
  frame.api = &api;
  static_assert(noexcept(Portable<kThrowsInt>(&frame)));
  EXPECT_NE(Portable<kThrowsText>(&frame), nullptr);
  EXPECT_EQ(g_message, "what it says");
  EXPECT_NE(Portable<kThrowsBadAlloc>(&frame), nullptr);
  EXPECT_EQ(g_message, "out of memory");
  EXPECT_NE(Portable<kThrowsInt>(&frame), nullptr);
  EXPECT_EQ(g_message, "unknown error");
}

TEST(Table, EveryKernelReportsVersionOneSoThatOldPluginsTakeIt) {
  ASSERT_FALSE(AllKernels().empty());
  for (const CustomCallHandler& kernel : AllKernels()) {
    XLA_FFI_Metadata metadata = {};
    metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
    // NOLINTNEXTLINE(bugprone-invalid-enum-default-initialization): set in the next line
    XLA_FFI_Metadata_Extension extension = {};
    extension.extension_base = {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata,
                                nullptr};
    extension.metadata = &metadata;
    XLA_FFI_CallFrame frame = {};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.extension_start = &extension.extension_base;
    EXPECT_EQ(reinterpret_cast<XLA_FFI_Handler*>(kernel.handler)(&frame), nullptr);
    EXPECT_EQ(metadata.api_version.major_version, 0) << kernel.target;
    EXPECT_EQ(metadata.api_version.minor_version, 1) << kernel.target;
    EXPECT_TRUE(kernel.target.starts_with("ulmus_")) << kernel.target;
  }
}

}  // namespace
}  // namespace ulmus::kernels
