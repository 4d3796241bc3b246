#include "data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"  // AsBytes

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

std::string Header(char major, const std::string& text) {
  std::string header = "\x93NUMPY"s + major + '\0' + static_cast<char>(text.size() & 255) +
                       static_cast<char>(text.size() >> 8);
  if (major > 1) header += "\0\0"s;
  return header + text;
}

TEST(Npy, ReadsWhatNumPyWrites) {
  // numpy.save of arange(3, dtype=uint16): 128 bytes of header, then the data.
  const std::string text = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }" +
                           std::string(128 - 10 - 57 - 1, ' ') + "\n";
  const Result<NpyHeader> header = ParseNpyHeader(AsBytes(Header(1, text)));
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->dtype, DType::kU16);
  EXPECT_EQ(header->num_elements, 3);
  EXPECT_EQ(header->data_offset, 128);
}

TEST(Npy, ReadsVersions2And3) {
  const std::string text = "{'descr': '|b1', 'fortran_order': False, 'shape': (7,), }\n";
  for (char major : {'\2', '\3'}) {
    const Result<NpyHeader> header = ParseNpyHeader(AsBytes(Header(major, text)));
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->dtype, DType::kBool);
    EXPECT_EQ(header->data_offset, 12 + static_cast<int64_t>(text.size()));
  }
}

TEST(Npy, WritesWhatItReads) {
  for (DType dtype : {DType::kU8, DType::kU16, DType::kU32, DType::kI64, DType::kBool}) {
    const std::string text = NpyHeaderText(dtype, int64_t{6} << 40);
    EXPECT_EQ(text.size() % 64, 0);
    const Result<NpyHeader> header = ParseNpyHeader(AsBytes(text));
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->dtype, dtype);
    EXPECT_EQ(header->num_elements, int64_t{6} << 40);
  }
}

TEST(Npy, RefusesHostileHeaders) {
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {"\x93NUMPY", "cut"},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }").substr(0, 30), "cut"},
      {"\x93NUMPY\x02\0\xff\xff\xff\xff"s, "claims 4294967295 bytes"},
      {Header(9, "{}"), "version 9"},
      {Header(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"), "\"<f4\""},
      {Header(1, "{'descr': '>u4', 'fortran_order': False, 'shape': (3,), }"), "\">u4\""},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (3, 4), }"), "more than one"},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (), }"), "no dimension"},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (-3,), }"), "no dimension"},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
       "no dimension"},
      {Header(1, "{'descr': '<u4', 'descr': '<u4', 'fortran_order': False, 'shape': (3,), }"),
       "once each"},
      {Header(1, "{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (3,), }"),
       "structured"},
      {Header(1, "{'descr': '<u4', 'shape': (3,), }"), "expected descr"},
      {Header(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), } import os"), "end"},
      {Header(1, "{'descr"), "a key"},
  };
  for (const auto& c : cases) {
    const Result<NpyHeader> header = ParseNpyHeader(AsBytes(c.bytes));
    ASSERT_FALSE(header.ok()) << c.message;
    EXPECT_THAT(header.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace ulmus::data
