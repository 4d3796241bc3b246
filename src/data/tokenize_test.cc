#include "data/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "data/testing/testdata.h"
#include "data/tokenize_bytes.h"
#include "data/tokenize_output.h"
#include "tokenizer/testing.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tokenizer::Dolma2;
using tokenizer::Reference;

bool GoOn() { return false; }

std::string Gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the program zstd does
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string Gunzip(const Path& path) {
  std::unique_ptr<ByteSource> source = *OpenByteSource(path);
  std::string text;
  char block[1000];
  while (const size_t count = *source->Read(block)) text.append(block, count);
  return text;
}

std::vector<int32_t> Ids32(const Path& path) {
  const std::string bytes = *ReadFile(path);
  std::vector<int32_t> ids(bytes.size() / 4);
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

class TokenizeTest : public ::testing::Test {
 protected:
  Path Write(const std::string& name, const std::string& bytes) {
    const Path path = dir_.path() / name;
    EXPECT_TRUE(WriteFileAtomic(path, bytes).ok());
    return path;
  }
  TokenizeOptions Options(std::vector<Path> inputs, const std::string& prefix = "out") {
    TokenizeOptions options;
    options.inputs = std::move(inputs);
    options.prefix = dir_.path() / prefix;
    return options;
  }
  Status Failure(const TokenizeOptions& options) {
    return Tokenize(Reference(), options, GoOn).status();
  }
  std::vector<std::string> Names() { return *ListDirectory(dir_.path()); }
  // Names and bytes of everything under a prefix, without the lock.
  std::map<std::string, std::string> Files(const std::string& prefix) {
    std::map<std::string, std::string> files;
    for (const std::string& name : Names()) {
      if (name.starts_with(prefix) && !name.ends_with(".lock"))
        files[name.substr(prefix.size())] = *ReadFile(dir_.path() / name);
    }
    return files;
  }
  // Documents of many lengths, some empty, one with the text of a special token.
  static std::string Jsonl(int documents) {
    std::string text;
    for (int i = 0; i < documents; ++i) {
      std::string body;
      for (int word = 0; word < i * 7 % 40; ++word)
        body += fmt::format("word{} ", (i + word) * word % 97);
      if (i == 5) body += "<|endoftext|>";
      text += nlohmann::json({{"id", i}, {"text", body}, {"meta", {{"text", "no"}}}}).dump() + "\n";
    }
    return text;
  }

  TempDir dir_;
};

TEST_F(TokenizeTest, WritesTokensSidecarAndManifest) {
  const Path first = Write("a.txt", "Hello world!");
  const Path second = Write("b.jsonl", "{\"text\": \" A\"}\n\n{\"text\": \"\"}\n{\"text\": \"x\"}");
  const auto report = Tokenize(Dolma2(), Options({first, second}), GoOn);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(Ids32(dir_.path() / "out-00000.npy"),
              ElementsAre(9906, 1917, 0, 100257, 362, 100257, 87, 100257));
  EXPECT_EQ(Gunzip(dir_.path() / "out-00000.csv.gz"), "0,4\n4,6\n6,8\n");
  const Manifest manifest = *ReadManifest(dir_.path() / "out.manifest.json");
  EXPECT_EQ(manifest, report->manifest);
  EXPECT_EQ(manifest.tokens, 8);
  EXPECT_EQ(manifest.documents, 3);
  EXPECT_EQ(manifest.empty_documents, 1);
  EXPECT_EQ(manifest.eos_id, 100257);
  EXPECT_EQ(manifest.tokenizer, Dolma2().fingerprint());
  EXPECT_EQ(manifest.files[0].part.sha256, Sha256Hex(*ReadFile(dir_.path() / "out-00000.npy")));
  EXPECT_EQ(manifest.files[0].sidecar->sha256,
            Sha256Hex(*ReadFile(dir_.path() / "out-00000.csv.gz")));
  EXPECT_EQ(Files("out").size(), 3u);  // nothing is left over
}

TEST_F(TokenizeTest, OutputDependsNeitherOnThreadsNorOnBatchesNorOnPacking) {
  const std::string text = Jsonl(300);
  const Path plain = Write("a.jsonl", text);
  TokenizeOptions options = Options({plain});
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  const std::string expected = Files("out")["-00000.npy"];
  const std::string half = text.substr(0, text.find('\n', text.size() / 2) + 1);
  int run = 0;
  for (const auto& [name, bytes] : std::map<std::string, std::string>{
           {"b.jsonl", text},
           {"c.jsonl.gz", Gzip(text)},
           {"d.jsonl.gz", Gzip(half) + Gzip(text.substr(half.size())) + std::string(512, '\0')},
           {"e.jsonl.zst", Zstd(half) + Zstd(text.substr(half.size()))}}) {
    options = Options({Write(name, bytes)}, fmt::format("run{}", run));
    options.num_threads = 1 + run;
    options.batch_bytes = 300 + 1000 * run;
    ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok()) << name;
    EXPECT_TRUE(Files(fmt::format("run{}", run))["-00000.npy"] == expected) << name;
    ++run;
  }
}

TEST_F(TokenizeTest, UntrustedTextEndsNoDocument) {
  const Path input = Write("a.jsonl", Jsonl(20));
  const auto report = Tokenize(Dolma2(), Options({input}), GoOn);
  ASSERT_TRUE(report.ok());
  const std::vector<int32_t> ids = Ids32(dir_.path() / "out-00000.npy");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 100257), report->manifest.documents);
}

TEST_F(TokenizeTest, ShardsEndOnDocuments) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(100))});
  options.max_shard_tokens = 200;
  const auto report = Tokenize(Reference(), options, GoOn);
  ASSERT_TRUE(report.ok());
  ASSERT_GT(report->manifest.files.size(), 5u);
  const int32_t eos = *Reference().eos_id();
  for (const ManifestFile& file : report->manifest.files) {
    const std::vector<int32_t> ids = Ids32(dir_.path() / file.part.name);
    EXPECT_EQ(ids.back(), eos);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), eos), file.documents);
    EXPECT_TRUE(file.tokens <= 200 || file.documents == 1) << file.part.name;
  }
}

// Stops, as by a signal or as by a kill, after every single batch, and goes on each time.
TEST_F(TokenizeTest, GoesOnToTheSameBytesAfterAnyStop) {
  const std::string text = Jsonl(40);
  const std::vector<Path> inputs = {Write("a.jsonl", text), Write("b.jsonl.gz", Gzip(text)),
                                    Write("c.jsonl.zst", Zstd(text)), Write("d.txt", text),
                                    TestDataPath("parquet/zstd_small_pages.parquet")};
  TokenizeOptions options = Options(inputs, "whole");
  options.max_shard_tokens = 700;
  options.batch_bytes = 2000;
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  options.prefix = dir_.path() / "parts";
  int stops = 0;
  while (true) {
    bool stop = false;
    const auto report = Tokenize(
        Reference(), options, [&stop] { return stop; },
        [&stop](const TokenizeProgress&) { stop = true; });
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->resumed, stops > 0);
    if (report->complete) break;
    ++stops;
    EXPECT_FALSE(*PathExists(dir_.path() / "parts.manifest.json"));
    EXPECT_FALSE(*PathExists(dir_.path() / "parts-00000.npy"));
    // A kill leaves bytes behind the saved state, which must not count.
    const std::string state = *ReadFile(dir_.path() / "parts.state.json");
    for (const std::string& name : Names()) {
      const Path path = dir_.path() / name;
      const bool ended = state.find(name.substr(0, 11)) != std::string::npos;
      if (name.starts_with("parts-") && !ended) {
        ASSERT_TRUE(WriteFileAtomic(path, *ReadFile(path) + "torn").ok());
      }
    }
  }
  EXPECT_GT(stops, 8);
  auto whole = Files("whole");
  auto parts = Files("parts");
  for (auto* files : {&whole, &parts}) {
    std::string& manifest = (*files)[".manifest.json"];
    for (size_t at; (at = manifest.find("parts-")) != std::string::npos;)
      manifest.replace(at, 6, "whole-");
  }
  EXPECT_TRUE(whole == parts);
}

TEST_F(TokenizeTest, ASecondRunFindsItComplete) {
  const TokenizeOptions options = Options({Write("a.jsonl", Jsonl(10))});
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  const auto before = Files("out");
  const auto again = Tokenize(Reference(), options, GoOn);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->already_complete);
  EXPECT_TRUE(Files("out") == before);
}

// "Already complete" is said only of files that are what the manifest says.
TEST_F(TokenizeTest, ACompleteOutputThatWasDamagedIsNotComplete) {
  const TokenizeOptions options = Options({Write("a.jsonl", Jsonl(10))});
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  for (const char* name : {"out-00000.npy", "out-00000.csv.gz"}) {
    const std::string whole = *ReadFile(dir_.path() / name);
    std::string flipped = whole;
    flipped[whole.size() / 3] ^= 1;
    for (const std::string& bytes : {whole.substr(0, whole.size() - 4), std::string(), flipped}) {
      Write(name, bytes);
      const Status status = Failure(options);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << name << " of " << bytes.size();
      EXPECT_THAT(status.message(), HasSubstr(name));
      EXPECT_THAT(status.message(), HasSubstr("--restart"));
      EXPECT_FALSE(*PathExists(dir_.path() / "out.lock"));
    }
    ASSERT_TRUE(RemoveFile(dir_.path() / name).ok());
    EXPECT_THAT(Failure(options).message(), HasSubstr(fmt::format("{}: missing", name)));
    Write(name, whole);
  }
  EXPECT_TRUE(Tokenize(Reference(), options, GoOn)->already_complete);
  Write("out.manifest.json", "{");
  const Status status = Failure(options);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("--restart"));
}

// An input of the same size and time that holds other text is another input.
TEST_F(TokenizeTest, ACompleteOutputOfAnEditedInputIsNotComplete) {
  const Path input = Write("a.jsonl", Jsonl(10));
  const TokenizeOptions options = Options({Write("b.txt", "b"), input});
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  const std::string text = *ReadFile(input);
  const auto time = std::filesystem::last_write_time(input);
  std::string edited = text;
  edited[edited.find("word")] = 'W';
  Write("a.jsonl", edited);
  std::filesystem::last_write_time(input, time);
  const Status status = Failure(options);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("another content of " + input.string()));
  EXPECT_THAT(status.message(), HasSubstr("--restart"));
  Write("a.jsonl", text);  // the same bytes at another time
  EXPECT_TRUE(Tokenize(Reference(), options, GoOn)->already_complete);
  Write("a.jsonl", text + "\n");
  EXPECT_THAT(Failure(options).message(), HasSubstr(fmt::format("now {}", text.size() + 1)));
}

TEST_F(TokenizeTest, LeftoversOfAKillGoWhenTheOutputIsComplete) {
  const TokenizeOptions options = Options({Write("a.jsonl", Jsonl(10))});
  const char* leftovers[] = {"out.state.json.tmp-7-0", "out.manifest.json.tmp-7-12", "out.lock",
                             "out-00001.npy.partial"};
  const char* others[] = {"out-b-00000.npy.partial", "out.state.jsonl", "out-00000.npy.bak"};
  for (int run = 0; run < 2; ++run) {  // one that works, one that has nothing to do
    for (const char* name : leftovers) Write(name, "x");
    for (const char* name : others) Write(name, "x");
    ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
    EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("a.jsonl", "out-00000.npy",
                                                         "out-00000.csv.gz", "out.manifest.json",
                                                         others[0], others[1], others[2]));
  }
}

TEST_F(TokenizeTest, TokenFilesOfAnotherMakerAreNotReplaced) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(10))});
  Write("out-00003.npy", "not ours");
  const Status status = Failure(options);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("out-00003.npy: stands there already"));
  EXPECT_THAT(status.message(), HasSubstr("--restart"));
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("a.jsonl", "out-00003.npy"));
  options.restart = true;
  EXPECT_TRUE(Tokenize(Reference(), options, GoOn).ok());
}

TEST_F(TokenizeTest, OtherSettingsAreRefusedUntilRestart) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(10))});
  ASSERT_TRUE(Tokenize(Reference(), options, GoOn).ok());
  options.dtype = DType::kU16;
  const Status refused = Failure(options);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("dtype u32, now u16"));
  options.restart = true;
  const auto report = Tokenize(Reference(), options, GoOn);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(FileSizeBytes(dir_.path() / "out-00000.npy").value(), 2 * report->manifest.tokens);
}

TEST_F(TokenizeTest, AnInputChangedSinceAStopIsRefused) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(100))});
  options.batch_bytes = 1000;
  bool stop = false;
  ASSERT_TRUE(Tokenize(
                  Reference(), options, [&stop] { return stop; },
                  [&](const TokenizeProgress&) { stop = true; })
                  .ok());
  Write("a.jsonl", Jsonl(100));  // same size, other time
  EXPECT_EQ(Failure(options).code(), StatusCode::kFailedPrecondition);
}

TEST_F(TokenizeTest, APartialFileThatWasCutIsRefused) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(100))});
  options.batch_bytes = 1000;
  bool stop = false;
  ASSERT_TRUE(Tokenize(
                  Reference(), options, [&stop] { return stop; },
                  [&](const TokenizeProgress&) { stop = true; })
                  .ok());
  Write("out-00000.npy.partial", "");
  const Status status = Failure(options);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("out-00000.npy.partial"));
}

TEST_F(TokenizeTest, ADtypeTooSmallForTheVocabularyIsRefusedBeforeAnythingIsWritten) {
  TokenizeOptions options = Options({Write("a.jsonl", Jsonl(3))});
  options.dtype = DType::kU16;
  const Status status = Tokenize(Dolma2(), options, GoOn).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("u16 holds ids up to 65535"));
  EXPECT_THAT(Files("out"), IsEmpty());
}

TEST_F(TokenizeTest, AnIdOutsideTheVocabularyIsNotWritten) {
  OutputOptions options;
  options.prefix = dir_.path() / "out";
  options.described.dtype = DType::kU16;
  options.described.vocab_size = 10;
  auto output = TokenOutput::Open(options);
  ASSERT_TRUE(output.ok());
  const int32_t ids[] = {1, 2, 10};
  const int64_t lengths[] = {3};
  EXPECT_EQ((*output)->Append(ids, lengths).code(), StatusCode::kInternal);
  EXPECT_EQ((*output)->num_documents(), 0);
}

// A write that failed may have left a part of its bytes; room that comes later must not make it
// count.
TEST_F(TokenizeTest, NothingIsSavedAfterAFailedWrite) {
  OutputOptions options;
  options.prefix = dir_.path() / "out";
  options.described.vocab_size = 10;
  auto output = TokenOutput::Open(options);
  ASSERT_TRUE(output.ok());
  const std::vector<int32_t> ids(1 << 20, 1);
  const int64_t lengths[] = {1 << 20};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = (*output)->Append(ids, lengths);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_EQ((*output)->Save().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(*PathExists(dir_.path() / "out.state.json"));
}

TEST_F(TokenizeTest, TwoProcessesDoNotShareAPrefix) {
  OutputOptions options;
  options.prefix = dir_.path() / "out";
  auto first = TokenOutput::Open(options);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(TokenOutput::Open(options).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(TokenizeTest, BadRecordsAreNamedByFileAndLine) {
  struct Case {
    const char* line;
    StatusCode code;
    const char* message;
  };
  const Case cases[] = {
      {"{\"text\": \"x\"", StatusCode::kDataLoss, "a.jsonl:2: is no JSON object: at byte"},
      {"[1]", StatusCode::kDataLoss, "a.jsonl:2: is no JSON object: it holds a list"},
      {"{\"text\": null, \"n\": {\"text\": 1}, \"text\": \"x\"}", StatusCode::kDataLoss,
       "a.jsonl:2: has field `text` twice"},
      {"{\"text\": \"x\", \"n\": 1e400}", StatusCode::kDataLoss,
       "a.jsonl:2: the number before byte 24 is beyond what a double holds"},
      {"7", StatusCode::kDataLoss, "it holds a number"},
      {"{\"text\": 7}", StatusCode::kDataLoss, "field `text` holds a number, not text"},
      {"{\"text\": null}", StatusCode::kDataLoss, "holds null"},
      {"{\"text\": {\"text\": \"x\"}}", StatusCode::kDataLoss, "holds an object"},
      {"{\"texts\": \"x\", \"id\": 1}", StatusCode::kInvalidArgument,
       "has no field `text`; did you mean `texts`?; it has: texts, id"},
      {"{\"text\": \"\xFF\"}", StatusCode::kDataLoss, "a.jsonl:2"},
      {"{\"text\": \"\\ud800\"}", StatusCode::kDataLoss, "a.jsonl:2"},
  };
  for (const Case& c : cases) {
    TokenizeOptions options = Options(
        {Write("a.jsonl", fmt::format("{{\"text\": \"a\"}}\n{}\n{{\"text\": \"b\"}}\n", c.line))});
    options.restart = true;
    const Status status = Failure(options);
    EXPECT_EQ(status.code(), c.code) << c.line << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.line;
    options.skip_bad = true;
    const auto report = Tokenize(Reference(), options, GoOn);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->manifest.bad_records, 1) << c.line;
    EXPECT_EQ(report->manifest.documents, 2);
  }
}

TEST_F(TokenizeTest, ADocumentBeyondTheLimitIsRefusedOrSkipped) {
  const std::string big(1000, 'x');
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const bool json = std::string(name) == "a.jsonl";
    TokenizeOptions options =
        Options({Write(name, json ? "{\"text\": \"" + std::string(20'000, 'x') + "\"}\n" : big),
                 Write("b.txt", "y")});
    options.records.max_document_bytes = 100;
    options.restart = true;
    EXPECT_EQ(Failure(options).code(), StatusCode::kOutOfRange);
    options.skip_bad = true;
    const auto report = Tokenize(Reference(), options, GoOn);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->manifest.bad_records, 1);
    EXPECT_EQ(report->manifest.documents, 1);
  }
}

TEST_F(TokenizeTest, CutOrDamagedArchivesAreDataLoss) {
  const std::string text = Jsonl(200);
  for (const std::string suffix : {".gz", ".zst"}) {
    const std::string packed = suffix == ".gz" ? Gzip(text) : Zstd(text);
    std::string flipped = packed;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x55);
    for (const std::string& bytes :
         {std::string(), packed.substr(0, 5), packed.substr(0, packed.size() / 2),
          packed.substr(0, packed.size() - 1), packed + "garbage", flipped, text}) {
      TokenizeOptions options = Options({Write("a.jsonl" + suffix, bytes)});
      options.restart = true;
      options.skip_bad = true;  // which is about records, not files
      const Status status = Failure(options);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << suffix << " of " << bytes.size();
      EXPECT_THAT(status.message(), HasSubstr("a.jsonl" + suffix));
      EXPECT_FALSE(*PathExists(dir_.path() / "out.manifest.json"));
    }
  }
}

TEST_F(TokenizeTest, InputsWithoutADocumentGiveNoFiles) {
  TokenizeOptions options = Options({Write("a.jsonl", "\n{\"text\": \"\"}\n")});
  const Status status = Failure(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("(1 empty, 0 bad)"));
  EXPECT_EQ(Failure(Options({dir_.path() / "none.txt"})).code(), StatusCode::kNotFound);
  EXPECT_EQ(Failure(Options({dir_.path()})).code(), StatusCode::kInvalidArgument);
}

TEST_F(TokenizeTest, LinesMayBeDocuments) {
  TokenizeOptions options = Options({Write("a.txt", "one\r\ntwo\n\nthree")});
  options.records.lines = true;
  const auto report = Tokenize(Reference(), options, GoOn);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->manifest.documents, 3);
  EXPECT_EQ(report->manifest.empty_documents, 1);
  EXPECT_EQ(*Reference().Decode(Ids32(dir_.path() / "out-00000.npy")),
            "one<|endoftext|>two<|endoftext|>three<|endoftext|>");
}

}  // namespace
}  // namespace ulmus::data
