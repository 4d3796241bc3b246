#include "checkpoint/hf_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "checkpoint/copy_tensors.h"
#include "checkpoint/testing/memory_source.h"

namespace ulmus::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string FileBytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

// A file with one u8 tensor of 4 elements.
std::string OneTensor(const std::string& name) {
  return FileBytes("{\"" + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
}

std::string Index(const std::string& weight_map, const std::string& metadata = "{}") {
  return R"({"metadata":)" + metadata + R"(,"weight_map":{)" + weight_map + "}}";
}

// A folder to be filled, inside one that holds files a hostile index might want.
class HfDirectoryTest : public testing::Test {
 protected:
  HfDirectoryTest() : folder_(temp_.path() / "model") {
    std::filesystem::create_directory(folder_);
    Write("../outside.safetensors", OneTensor("t"));
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string Error(StatusCode code = StatusCode::kDataLoss) {
    const Status status = HfDirectory::Open(folder_).status();
    EXPECT_EQ(status.code(), code) << status.message();
    return status.message();
  }
  const TempDir temp_;
  const Path folder_;
};

TEST_F(HfDirectoryTest, FileNamesThatLeaveTheFolderAreRefusedBeforeAnyOpen) {
  // The good shard is a pipe: opening it would be noticed as "not a regular file".
  ASSERT_EQ(mkfifo((folder_ / "a.safetensors").c_str(), 0600), 0);
  const struct {
    std::string json;  // as written in the index
    const char* message;
  } cases[] = {
      {"../outside.safetensors", "path separator"},
      {"/etc/passwd", "path separator"},
      {"//host/x.safetensors", "path separator"},
      {"nested/x.safetensors", "path separator"},
      {"./x.safetensors", "path separator"},
      {"..\\\\x.safetensors", "path separator"},
      {"x\\u0000.safetensors", "control character"},
      {"x\\n.safetensors", "control character"},
      {"", "is empty"},
      {".", "names a folder"},
      {"..", "names a folder"},
      {std::string(300, 'x') + ".safetensors", "longer than 255"},
      {"config.json", "no .safetensors file"},
  };
  for (const auto& c : cases) {
    Write(std::string(kIndexFileName), Index(R"("a":"a.safetensors","evil":")" + c.json + "\""));
    EXPECT_THAT(Error(), AllOf(HasSubstr("tensor \"evil\""), HasSubstr(c.message),
                               HasSubstr(kIndexFileName)))
        << c.json;
  }
}

TEST_F(HfDirectoryTest, LinksThatLeaveTheFolderAreRefused) {
  Write("a.safetensors", OneTensor("a"));
  Write(std::string(kIndexFileName), Index(R"("a":"a.safetensors","t":"link.safetensors")"));
  for (const Path& target : {Path("../outside.safetensors"), temp_.path() / "outside.safetensors",
                             Path("/dev/zero"), Path("/proc/self/mem")}) {
    std::filesystem::remove(folder_ / "link.safetensors");
    std::filesystem::create_symlink(target, folder_ / "link.safetensors");
    EXPECT_THAT(Error(), AllOf(HasSubstr("tensor \"t\""), HasSubstr("leads out of its folder")))
        << target;
  }
}

TEST_F(HfDirectoryTest, LinksToFoldersPipesAndNothingAreRefused) {
  Write(std::string(kIndexFileName), Index(R"("t":"link.safetensors")"));
  std::filesystem::create_directory(folder_ / "inner");
  std::filesystem::create_symlink("inner", folder_ / "link.safetensors");
  EXPECT_THAT(Error(), HasSubstr("not a regular file"));
  std::filesystem::remove(folder_ / "link.safetensors");
  std::filesystem::create_symlink("gone", folder_ / "link.safetensors");
  EXPECT_THAT(Error(StatusCode::kNotFound), HasSubstr("link.safetensors"));
  std::filesystem::remove(folder_ / "link.safetensors");
  std::filesystem::create_symlink("link.safetensors", folder_ / "link.safetensors");
  EXPECT_THAT(Error(StatusCode::kFailedPrecondition), HasSubstr("circle"));
}

TEST_F(HfDirectoryTest, SideFilesThatLeaveTheFolderAreRefused) {
  Write(std::string(kSingleFileName), OneTensor("t"));
  std::filesystem::create_symlink("/etc/passwd", folder_ / "tokenizer.json");
  EXPECT_THAT(Error(), AllOf(HasSubstr("tokenizer.json"), HasSubstr("leads out")));
}

TEST_F(HfDirectoryTest, LinksOfTheDownloadCacheAreFollowed) {
  const Path repository = temp_.path() / "models--x--y";
  const Path snapshot = repository / "snapshots" / "0123";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(repository / "blobs");
  std::ofstream(repository / "blobs" / "digest", std::ios::binary) << OneTensor("t");
  std::filesystem::create_symlink("../../blobs/digest", snapshot / kSingleFileName);
  const auto directory = HfDirectory::Open(snapshot);
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ((*directory)->tensors()[0].name, "t");

  std::filesystem::create_symlink("../../../outside.safetensors", snapshot / "config.json");
  EXPECT_EQ(HfDirectory::Open(snapshot).status().code(), StatusCode::kDataLoss);
}

TEST_F(HfDirectoryTest, AnAbsentShardIsNamed) {
  Write("a.safetensors", OneTensor("a"));
  Write(std::string(kIndexFileName), Index(R"("a":"a.safetensors","b":"b.safetensors")"));
  EXPECT_THAT(Error(StatusCode::kNotFound),
              AllOf(HasSubstr("b.safetensors"), HasSubstr("tensor \"b\"")));
}

TEST_F(HfDirectoryTest, IndexAndFilesMustAgree) {
  Write("a.safetensors", OneTensor("a"));
  Write("b.safetensors", OneTensor("b"));
  Write("again.safetensors", OneTensor("a"));
  const struct {
    std::string index;
    const char* message;
  } cases[] = {
      {Index(R"("a":"b.safetensors","b":"a.safetensors")"), "index lists tensor \"a\" in"},
      {Index(R"("a":"a.safetensors","c":"a.safetensors")"), "no file has it"},
      {Index(R"("b":"b.safetensors","a":"again.safetensors","x":"a.safetensors")"), "in two files"},
      {Index(R"("b":"b.safetensors","x":"a.safetensors")"), "no file has it"},
      {Index(R"("a":"a.safetensors","b":"b.safetensors")", R"({"total_size":9})"),
       "total_size 9, the tensors take 8"},
      {Index(R"("a":"a.safetensors","b":"b.safetensors","a":"b.safetensors")"), "\"a\" twice"},
      {Index(R"("a":"a.safetensors","b":"b.safetensors","\u0061":"a.safetensors")"), "\"a\" twice"},
      {R"({"weight_map":{"a":"a.safetensors"},"weight_map":{"b":"b.safetensors"}})",
       "weight_map appears twice"},
      {Index("", "{}"), "weight_map is empty"},
      {R"({"metadata":{}})", "no weight_map"},
      {R"({"weight_map":[]})", "expected an object"},
      {R"({"weight_map":null})", "expected an object"},
      {Index(R"("a":7)"), "expected a file name"},
      {Index(R"("a":["a.safetensors"])"), "expected an object"},
      {Index(R"("a":{"x":"a.safetensors"})"), "expected a file name"},
      {Index(R"("a":"a.safetensors")", R"({"total_size":"8"})"), "total_size is a text"},
      {Index(R"("a":"a.safetensors")", R"({"total_size":-8})"), "total_size is a negative"},
      {Index(R"("a":"a.safetensors")", R"({"total_size":1e300})"), "no number of bytes"},
      {Index(R"("a":"a.safetensors")",
             R"({"x":)" + std::string(50, '[') + std::string(50, ']') + "}"),
       "nested deeper"},
      {"[]", "expected an object"},
      {"7", "expected an object"},
      {"", "not valid JSON"},
      {Index(R"("a":"a.safetensors","b":"b.safetensors")") + std::string(1, '\0'), "NUL"},
      {"{\"weight_map\":{\"\xff\":\"a.safetensors\"}}", "not valid JSON"},
  };
  for (const auto& c : cases) {
    Write(std::string(kIndexFileName), c.index);
    EXPECT_THAT(Error(), HasSubstr(c.message)) << c.index;
  }
  Write("b.safetensors", FileBytes(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                   R"("hidden":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})",
                                   5));
  Write(std::string(kIndexFileName), Index(R"("a":"a.safetensors","b":"b.safetensors")"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("\"hidden\""), HasSubstr("does not list")));
}

TEST_F(HfDirectoryTest, ATotalSizeWrittenAsAFloatIsRead) {
  Write("a.safetensors", OneTensor("a"));
  Write(std::string(kIndexFileName),
        Index(R"("a":"a.safetensors")", R"({"total_size":4.0,"total_parameters":4})"));
  EXPECT_TRUE(HfDirectory::Open(folder_).ok());
}

TEST_F(HfDirectoryTest, SaysWhichFileIsMissing) {
  EXPECT_THAT(Error(StatusCode::kNotFound), HasSubstr("has neither"));
  Write("model-00001-of-00002.safetensors", OneTensor("a"));
  EXPECT_THAT(Error(StatusCode::kNotFound), HasSubstr("download the index"));
  Write(std::string(kSingleFileName), OneTensor("a"));
  EXPECT_TRUE(HfDirectory::Open(folder_).ok());
  Write(std::string(kIndexFileName), Index(R"("a":"model-00001-of-00002.safetensors")"));
  EXPECT_THAT(Error(), HasSubstr("remove the one that is stale"));
}

// --- Writing

MemorySource SomeTensors() {
  std::map<std::string, HostTensor> tensors;
  for (int i = 0; i < 10; ++i) {
    HostTensor tensor(TensorType{i == 3 ? DType::kI64 : DType::kBF16, {i + 1, 8}});
    for (int64_t e = 0; e < tensor.num_elements(); ++e)
      tensor.Set(e, static_cast<double>(i * 100 + e));
    tensors.emplace(fmt::format("layers.{}.weight", i), std::move(tensor));
  }
  return MemorySource(std::move(tensors), {{"config.json", "{\"a\":1}"}, {"merges.txt", "x y"}});
}

std::vector<TensorCopy> CopiesFor(const TensorSource& source, const HfLayout& layout) {
  std::vector<TensorCopy> copies;
  for (TensorInfo& info : layout.Tensors())
    copies.push_back({FindTensor(source, info.name).value(), std::move(info)});
  return copies;
}

Status WriteAll(const TensorSource& source, const Path& folder, const HfLayout& layout,
                bool overwrite = false) {
  auto sink = TRY(HfSink::Create(folder, layout, {.overwrite = overwrite}));
  TRY(CopyTensors(source, CopiesFor(source, layout), *sink));
  for (const std::string& name : source.SideFiles())
    if (name != kLayoutFileName) {
      const std::string bytes = TRY(source.LoadSideFile(name));
      TRY(sink->AddSideFile(name, bytes));
    }
  return sink->Commit();
}

std::map<std::string, std::string> Contents(const Path& folder) {
  std::map<std::string, std::string> contents;
  const std::vector<std::string> names = ListDirectory(folder).value();
  for (const std::string& name : names) contents[name] = ReadFile(folder / name).value();
  return contents;
}

void ExpectSameTensors(const TensorSource& a, const TensorSource& b) {
  ASSERT_TRUE(std::ranges::equal(a.tensors(), b.tensors()));
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    std::vector<std::byte> x(static_cast<size_t>(a.tensors()[i].type.size_bytes())), y(x.size());
    ASSERT_TRUE(a.Read(static_cast<int64_t>(i), 0, x).ok());
    ASSERT_TRUE(b.Read(static_cast<int64_t>(i), 0, y).ok());
    EXPECT_EQ(x, y) << a.tensors()[i].name;
  }
}

TEST(HfLayout, AFileIsClosedWhenTheNextTensorWouldExceedTheLimit) {
  const std::vector<TensorInfo> tensors = {{"a", {DType::kU8, {6}}},
                                           {"b", {DType::kU8, {4}}},
                                           {"c", {DType::kU8, {5}}},
                                           {"d", {DType::kU8, {50}}},
                                           {"e", {DType::kU8, {1}}}};
  const auto layout = PlanHfLayout(tensors, {.max_shard_bytes = 10});
  ASSERT_TRUE(layout.ok());
  std::vector<std::string> files;
  for (const HfFile& file : layout->files) {
    std::string names;
    for (const auto& tensor : file.header.tensors) names += tensor.info.name;
    files.push_back(file.name + " " + names);
  }
  EXPECT_THAT(files, testing::ElementsAre("model-00001-of-00004.safetensors ab",
                                          "model-00002-of-00004.safetensors c",
                                          "model-00003-of-00004.safetensors d",
                                          "model-00004-of-00004.safetensors e"));
  EXPECT_EQ(layout->index_text,
            "{\n  \"metadata\": {\n    \"total_size\": 66\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00004.safetensors\",\n"
            "    \"b\": \"model-00001-of-00004.safetensors\",\n"
            "    \"c\": \"model-00002-of-00004.safetensors\",\n"
            "    \"d\": \"model-00003-of-00004.safetensors\",\n"
            "    \"e\": \"model-00004-of-00004.safetensors\"\n  }\n}\n");
}

TEST(HfLayout, OneFileHasNoIndex) {
  const auto layout = PlanHfLayout(std::vector<TensorInfo>{{"a", {DType::kU8, {6}}}}, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->files[0].name, kSingleFileName);
  EXPECT_FALSE(layout->index_text.has_value());
}

TEST(HfLayout, TextReadsBackTheSame) {
  const MemorySource source = SomeTensors();
  for (int64_t limit : {100, 1'000'000}) {
    const HfLayout layout = PlanHfLayout(source.tensors(), {.max_shard_bytes = limit}).value();
    const auto again = ParseLayout(LayoutText(layout));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(LayoutText(*again), LayoutText(layout));
    EXPECT_EQ(again->Tensors(), layout.Tensors());
  }
}

TEST(HfLayout, HostileTextIsRefused) {
  const std::string header = R"({\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}})";
  const auto text = [&](const std::string& files, const std::string& index = "null") {
    return R"({"format":"ulmus safetensors layout 1","index":)" + index + R"(,"files":[)" + files +
           "]}";
  };
  const std::string good = R"({"name":"a.safetensors","header":")" + header + "\"}";
  ASSERT_TRUE(ParseLayout(text(good)).ok());
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), std::string(100'000, '['), text(""),
        text("7"), text(good + "," + good),
        text(R"({"name":"../a.safetensors","header":")" + header + "\"}"),
        text(R"({"name":"a.txt","header":")" + header + "\"}"),
        text(R"({"name":"a.safetensors","header":"[]"})"), text(R"({"name":"a.safetensors"})"),
        text(good, R"("{}")"), text(good + R"(,{"name":"b.safetensors","header":"{}"})"),
        text(good, R"("{\"weight_map\":{\"t\":\"b.safetensors\"}}")")}) {
    EXPECT_EQ(ParseLayout(bad).status().code(), StatusCode::kDataLoss) << bad.substr(0, 200);
  }
}

TEST(HfSink, WhatWasWrittenReadsBackForEveryShardLimit) {
  const MemorySource source = SomeTensors();
  for (int64_t limit : {1, 64, 100, 300, 100'000}) {
    const TempDir temp;
    const HfLayout layout = PlanHfLayout(source.tensors(), {.max_shard_bytes = limit}).value();
    ASSERT_TRUE(WriteAll(source, temp.path() / "out", layout).ok());
    const auto written = HfDirectory::Open(temp.path() / "out");
    ASSERT_TRUE(written.ok()) << written.status().message();
    ExpectSameTensors(**written, source);
    EXPECT_EQ(ReadFile(temp.path() / "out" / "merges.txt").value(), "x y");
    EXPECT_THAT((*written)->SideFiles(),
                testing::ElementsAre("config.json", "merges.txt", kLayoutFileName));
    EXPECT_THAT(ListDirectory(temp.path()).value(), testing::ElementsAre("out"));
  }
}

TEST(HfSink, AForeignLayoutIsWrittenAgainByteForByte) {
  const TempDir temp;
  // Unsorted names, gaps of spaces, keys in another order, no metadata, an empty tensor.
  const std::string header_1 =
      R"({ "z": {"shape":[4], "dtype":"U8", "data_offsets":[0,4]},"a":{"data_offsets":[4,8],)"
      R"("dtype":"I32","shape":[1,1]} , "e":{"dtype":"BF16","shape":[0],"data_offsets":[4,4]}}     )";
  const std::string header_2 =
      R"({"__metadata__":{"x":"\u00e9"},"m":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})";
  const Path from = temp.path() / "from";
  std::filesystem::create_directory(from);
  const auto write = [&](std::string_view name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomic(from / name, bytes).ok());
  };
  std::string bytes = FileBytes(header_1, 8);
  bytes[bytes.size() - 3] = 'x';
  write("one.safetensors", bytes);
  write("two.safetensors", FileBytes(header_2, 2));
  write("none.safetensors", FileBytes("{}", 0));
  write(kIndexFileName,
        R"({"weight_map":{"z":"one.safetensors","m":"two.safetensors","a":"one.safetensors",)"
        R"("e":"one.safetensors"}})");
  write("config.json", "{ }\n");
  std::filesystem::remove(from / "none.safetensors");
  const auto source = HfDirectory::Open(from);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const HfLayout layout = ParseLayout((*source)->LoadSideFile(kLayoutFileName).value()).value();
  ASSERT_TRUE(WriteAll(**source, temp.path() / "to", layout).ok());
  EXPECT_EQ(Contents(temp.path() / "to"), Contents(from));
}

TEST(HfSink, WithoutCommitNothingIsLeft) {
  const TempDir temp;
  const MemorySource source = SomeTensors();
  const HfLayout layout = PlanHfLayout(source.tensors(), {}).value();
  {
    auto sink = HfSink::Create(temp.path() / "out", layout, {});
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE(CopyTensors(source, CopiesFor(source, layout), **sink).ok());
    EXPECT_THAT(ListDirectory(temp.path()).value(), testing::ElementsAre("out.incomplete"));
  }
  EXPECT_THAT(ListDirectory(temp.path()).value(), testing::IsEmpty());
}

TEST(HfSink, CommitWithMissingTensorsIsRefused) {
  const TempDir temp;
  const MemorySource source = SomeTensors();
  const HfLayout layout = PlanHfLayout(source.tensors(), {}).value();
  auto copies = CopiesFor(source, layout);
  copies.pop_back();
  auto sink = HfSink::Create(temp.path() / "out", layout, {});
  ASSERT_TRUE(CopyTensors(source, copies, **sink).ok());
  EXPECT_EQ((*sink)->Commit().code(), StatusCode::kFailedPrecondition);
}

TEST(HfSink, AnExistingDirectoryIsReplacedOnlyWhenAsked) {
  const TempDir temp;
  const Path out = temp.path() / "out";
  const MemorySource source = SomeTensors();
  const HfLayout layout = PlanHfLayout(source.tensors(), {}).value();
  std::filesystem::create_directory(out);
  std::ofstream(out / "precious") << "x";
  EXPECT_EQ(WriteAll(source, out, layout).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(out / "precious"));
  ASSERT_TRUE(WriteAll(source, out, layout, /*overwrite=*/true).ok());
  EXPECT_FALSE(std::filesystem::exists(out / "precious"));
  EXPECT_TRUE(HfDirectory::Open(out).ok());
  EXPECT_THAT(ListDirectory(temp.path()).value(), testing::ElementsAre("out"));
}

TEST(AtomicDirectory, LeftoversOfAKilledWriterAreRemoved) {
  const TempDir temp;
  std::filesystem::create_directories(temp.path() / "out.incomplete" / "old");
  auto directory = AtomicDirectory::Create(temp.path() / "out/", false);
  ASSERT_TRUE(directory.ok());
  EXPECT_THAT(ListDirectory(directory->temp()).value(), testing::IsEmpty());
  ASSERT_TRUE(directory->Commit().ok());
  EXPECT_THAT(ListDirectory(temp.path()).value(), testing::ElementsAre("out"));
}

TEST(AtomicDirectory, TwoWritersOfOnePathDoNotMix) {
  const TempDir temp;
  auto first = AtomicDirectory::Create(temp.path() / "out", false);
  ASSERT_TRUE(first.ok());
  const auto second = AtomicDirectory::Create(temp.path() / "out", false);
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(first->temp()));
}

}  // namespace
}  // namespace ulmus::checkpoint
