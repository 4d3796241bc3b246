// `ulmus tokenize` from outside.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <zstd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apps/testing/run_program.h"
#include "base/file.h"

namespace ulmus::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string Source(const std::string& name) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  return std::string(root != nullptr ? root : ".") + "/src/" + name;
}
std::string Parquet(const std::string& name) {
  return Source("data/testdata/parquet/" + name + ".parquet");
}

// The texts of the Parquet files, as testdata/make_parquet.py writes them.
std::string Text(int row) {
  std::string text = "Row " + std::to_string(row) + ": ";
  for (int word = 0; word < row * 7 % 40; ++word) text += "word ";
  return row % 5 == 0 ? text + "\u00e9\u5317\u4eac" : text;
}
std::string Jsonl(int rows) {
  std::string lines;
  for (int row = 0; row < rows; ++row)
    lines += json({{"id", row}, {"text", Text(row)}}).dump() + "\n";
  return lines;
}

class Tokenize : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(At(name), std::ios::binary) << bytes;
    return At(name);
  }
  std::string Arguments(const std::string& out, const std::string& rest) const {
    return "tokenize --tokenizer " +
           Source("tokenizer/testdata/" + tokenizer_ + "_tokenizer.json") + " --out " + At(out) +
           " " + rest;
  }
  // `prefix` goes before the program in the shell.
  Output Run(const std::string& out, const std::string& rest, const std::string& prefix = "") {
    return RunShell(prefix + ULMUS_PROGRAM + " " + Arguments(out, rest));
  }
  // Names and bytes under a prefix; the manifest speaks of the names.
  std::map<std::string, std::string> Files(const std::string& out) {
    std::map<std::string, std::string> files;
    const std::vector<std::string> names = *ListDirectory(dir_.path());
    for (const std::string& name : names) {
      if (!name.starts_with(out + "-") && !name.starts_with(out + ".")) continue;
      std::string& bytes = files[name.substr(out.size())] = *ReadFile(dir_.path() / name);
      for (size_t at; name.ends_with(".json") && (at = bytes.find('"' + out + "-")) != bytes.npos;)
        bytes.replace(at + 1, out.size(), "");
    }
    return files;
  }
  bool Exists(const std::string& name) const { return *PathExists(dir_.path() / name); }

  std::string tokenizer_ = "dolma2";
  TempDir dir_;
};

TEST_F(Tokenize, EveryKindOfInputGivesTheSameTokens) {
  const std::string lines = Jsonl(100);
  Write("a.jsonl", lines);
  ASSERT_EQ(RunShell("gzip -k " + At("a.jsonl")).exit_code, 0);
  std::string packed(ZSTD_compressBound(lines.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), lines.data(), lines.size(), 3));
  Write("a.jsonl.zst", packed);
  std::string texts;
  for (int row = 0; row < 100; ++row) {
    const std::string path = Write("t" + std::to_string(1000 + row) + ".txt", Text(row));
    texts += path + " ";
  }
  const Output first = Run("jsonl", At("a.jsonl") + " --json");
  ASSERT_EQ(first.exit_code, 0) << first.text;
  const json report = json::parse(first.text);
  EXPECT_EQ(report["documents"], 100);
  EXPECT_GT(report["tokens"], 1000);
  EXPECT_GE(report["seconds"], 0);
  const auto expected = Files("jsonl");
  ASSERT_EQ(expected.size(), 3u);
  EXPECT_EQ(expected.at("-00000.npy").size(), 4 * report["tokens"].get<size_t>());
  const std::pair<const char*, std::string> inputs[] = {{"gz", At("a.jsonl.gz")},
                                                        {"zst", At("a.jsonl.zst")},
                                                        {"text", texts},
                                                        {"parquet", Parquet("lz4_delta")}};
  for (const auto& [name, input] : inputs) {
    const Output output = Run(name, input + " --threads 3");
    ASSERT_EQ(output.exit_code, 0) << output.text;
    EXPECT_TRUE(Files(name).at("-00000.npy") == expected.at("-00000.npy")) << name;
    EXPECT_TRUE(Files(name).at("-00000.csv.gz") == expected.at("-00000.csv.gz")) << name;
  }
}

// A run of the program that signals can be sent to.
class Child {
 public:
  explicit Child(const std::string& command) : pid_(fork()) {
    if (pid_ != 0) return;
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    const std::string line = "exec " + command;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Send(int signal) const { kill(pid_, signal); }
  // Exit code, or minus the signal that ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

class TokenizeSignals : public Tokenize {
 protected:
  TokenizeSignals() {
    // Some seconds of work: all kinds, several files of tokens.
    std::string lines;
    while (lines.size() < size_t{2} << 20) lines += Jsonl(100);
    input_ = Write("a.jsonl", lines) + " ";
    EXPECT_EQ(RunShell("gzip -1 -k " + At("a.jsonl")).exit_code, 0);
    input_ += At("a.jsonl.gz") + " " + Parquet("zstd_small_pages") + " " + Write("b.txt", lines);
    input_ += " --shard-tokens 300000 --threads 1 --save-interval-s 0";
    const Output whole = Run("whole", input_);
    EXPECT_EQ(whole.exit_code, 0) << whole.text;
  }
  // Runs until the saved state has changed `states` times, or the end.
  void WaitForStates(const std::string& out, int states) const {
    std::string last = ReadFile(At(out + ".state.json")).value_or("");
    const auto start = std::chrono::steady_clock::now();
    while (states > 0 && !Exists(out + ".manifest.json")) {
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::string now = ReadFile(At(out + ".state.json")).value_or(last);
      if (now != last) --states;
      last = now;
    }
  }
  void ExpectNothingFinal(const std::string& out) const {
    EXPECT_FALSE(Exists(out + "-00000.npy"));
    EXPECT_FALSE(Exists(out + "-00000.csv.gz"));
    EXPECT_FALSE(Exists(out + ".manifest.json"));
  }
  std::string input_;
};

TEST_F(TokenizeSignals, KilledAnywhereItGoesOnToTheSameBytes) {
  int kills = 0;
  for (const int states : {1, 2, 1, 1}) {
    Child child(std::string(ULMUS_PROGRAM) + " " + Arguments("out", input_));
    WaitForStates("out", states);
    child.Send(SIGKILL);
    if (child.Wait() != -SIGKILL) break;
    ++kills;
    ExpectNothingFinal("out");
  }
  EXPECT_GE(kills, 2);
  const Output rest = Run("out", input_ + " --json");
  ASSERT_EQ(rest.exit_code, 0) << rest.text;
  EXPECT_EQ(json::parse(rest.text)["resumed"], true);
  EXPECT_TRUE(Files("out") == Files("whole"));
  const Output again = Run("out", input_);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.text, HasSubstr("already complete"));
  EXPECT_EQ(json::parse(Run("out", input_ + " --json").text)["already_complete"], true);
}

TEST_F(TokenizeSignals, AskedToStopItSavesAndExits75) {
  int stops = 0;
  for (const int signal : {SIGTERM, SIGINT}) {
    Child child(std::string(ULMUS_PROGRAM) + " " + Arguments("out", input_));
    WaitForStates("out", 1);
    child.Send(signal);
    const int code = child.Wait();
    if (code == 0) break;
    EXPECT_EQ(code, 75);
    ++stops;
    ExpectNothingFinal("out");
  }
  EXPECT_GE(stops, 1);
  ASSERT_EQ(Run("out", input_).exit_code, 0);
  EXPECT_TRUE(Files("out") == Files("whole"));
}

TEST_F(TokenizeSignals, WithoutRoomItFailsAndGoesOnLater) {
  // 512-byte blocks: less than one file of tokens.
  const Output full = Run("out", input_, "ulimit -f 1800; ");
  EXPECT_EQ(full.exit_code, 1) << full.text;
  EXPECT_THAT(full.text, HasSubstr("out-00000.npy.partial: cannot write"));
  ExpectNothingFinal("out");
  ASSERT_EQ(Run("out", input_).exit_code, 0);
  EXPECT_TRUE(Files("out") == Files("whole"));
}

TEST_F(Tokenize, BadInputsAreRefusedByName) {
  tokenizer_ = "reference";
  const std::string good = Write("good.jsonl", "{\"text\": \"x\"}\n");
  Write("bad.jsonl", "{\"text\": \"x\"}\nnot json\n");
  Write("field.jsonl", "{\"texts\": \"x\"}\n");
  Write("cut.jsonl.gz", "\x1f\x8b\x08");
  Write("cut.jsonl.zst", "\x28\xb5\x2f\xfd");
  Write("cut.parquet", ReadFile(Parquet("brotli"))->substr(0, 2000));
  Write("text.parquet", "this is text");
  Write("empty.jsonl", "");
  Write("packed.parquet.gz", "x");
  Write("twice.jsonl", "{\"text\": \"x\"}\n{\"text\": null, \"text\": \"x\"}\n");
  Write("huge.jsonl", "{\"text\": \"x\", \"n\": " + std::string(309, '9') + "}\n");
  struct Case {
    std::string input;
    int exit_code;
    const char* message;
  };
  const Case cases[] = {
      {At("none.jsonl"), 1, "none.jsonl: cannot open"},
      {dir_.path().string(), 2, "a folder; name its files"},
      {At("bad.jsonl"), 3, "bad.jsonl:2: is no JSON object"},
      {At("field.jsonl"), 2, "field.jsonl:1: has no field `text`; did you mean `texts`?"},
      {At("cut.jsonl.gz"), 3, "cut.jsonl.gz: the gzip data ends too early"},
      {At("cut.jsonl.zst"), 3, "cut.jsonl.zst: the zstd data ends too early"},
      {At("cut.parquet"), 3, "cut.parquet: damaged, or no Parquet file"},
      {At("text.parquet"), 3, "text.parquet: damaged, or no Parquet file"},
      {At("packed.parquet.gz"), 2, "packed.parquet.gz: a Parquet file is compressed inside"},
      {At("empty.jsonl"), 2, "the inputs hold no document"},
      {Parquet("columns") + " --field raw", 2, "column `raw` holds binary, not text; it has: "},
      {Parquet("columns") + " --field texts", 2, "has no column `texts`; did you mean `text`?"},
      {Parquet("columns"), 3, "columns.parquet:2: column `text` holds null"},
      {Parquet("columns") + " --field broken", 3, "columns.parquet:2: byte 0 is not UTF-8"},
      {good + " --dtype u8", 2, "dtype u8 holds ids up to 255"},
      {good + " --dtype i32", 2, "use u16 or u32"},
      {good + " --dtype u33", 2, "u33"},
      {good + " --eos nope", 2, "--eos"},
      {good + " --eos x", 2, "`x` (id "},
      {good + " --eos 0", 2, "token of ordinary text"},
      {good + " --shard-tokens 0", 2, "--shard-tokens"},
      {good + " --shard-tokens 9223372036854775808", 2, "not in range 1 to 281474976710656"},
      {good + " --shard-tokens " + std::string(309, '9'), 2, "not in range 1 to 281474976710656"},
      {good + " --save-interval-s nan", 2, "nan is no number of seconds from 0 to 1e9"},
      {good + " --save-interval-s inf", 2, "inf is no number of seconds from 0 to 1e9"},
      {good + " --save-interval-s -1", 2, "-1 is no number of seconds from 0 to 1e9"},
      {good + " --save-interval-s " + std::string(309, '9'), 2, "9 is no number of seconds"},
      {good + " --save-interval-s 1s", 2, "1s is no number of seconds"},
      {At("twice.jsonl"), 3, "twice.jsonl:2: has field `text` twice"},
      {At("huge.jsonl"), 3, "huge.jsonl:1: the number before byte"},
      {good + " --threads 0", 2, "--threads"},
      {good + " --tokenizer " + good, 2, "--tokenizer"},
      {"", 2, "input"},
  };
  for (const Case& c : cases) {
    const Output output = Run("out", c.input);
    EXPECT_EQ(output.exit_code, c.exit_code) << c.input << ": " << output.text;
    EXPECT_THAT(output.text, HasSubstr(c.message)) << c.input;
    EXPECT_LT(output.text.size(), 1000u) << c.input;  // no digits of the largest double
    EXPECT_FALSE(Exists("out-00000.npy")) << c.input;
    EXPECT_FALSE(Exists("out.manifest.json")) << c.input;
    RunShell("rm -f " + At("out.*") + " " + At("out-*"));
  }
  const std::string program = std::string(ULMUS_PROGRAM) + " tokenize " + good;
  const Output no_tokenizer =
      RunShell(program + " --tokenizer " + At("none") + " --out " + At("o"));
  EXPECT_EQ(no_tokenizer.exit_code, 1);
  EXPECT_THAT(no_tokenizer.text, HasSubstr("none"));
  const Output not_one = RunShell(program + " --tokenizer " + good + " --out " + At("o"));
  EXPECT_TRUE(not_one.exit_code == 2 || not_one.exit_code == 3) << not_one.text;
  EXPECT_THAT(not_one.text, HasSubstr("good.jsonl"));
  EXPECT_EQ(RunShell(program + " --out " + At("o")).exit_code, 2);
  for (const char* out : {"", ".", "..", "folder/"}) {
    const Output output = Run(std::string("x/") + out, good);
    EXPECT_EQ(output.exit_code, 2) << out << ": " << output.text;
    EXPECT_THAT(output.text, HasSubstr("ends in no name"));
  }
  const Output no_folder = Run("good.jsonl/out", good);
  EXPECT_EQ(no_folder.exit_code, 1);
  EXPECT_THAT(no_folder.text, HasSubstr("good.jsonl"));
}

TEST_F(Tokenize, BadRecordsAreCountedWhenSkipped) {
  const Output output = Run("out", Parquet("columns") + " --skip-bad --json 2>/dev/null");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json report = json::parse(output.text.substr(output.text.find('{')));
  EXPECT_EQ(report["documents"], 2);
  EXPECT_EQ(report["bad_records"], 1);
  EXPECT_EQ(report["empty_documents"], 1);
}

// Case B16: the dtype asked for is the one written; read as another it is refused, with a proposal.
TEST_F(Tokenize, TheDtypeAskedForIsWrittenAndAnotherIsRefused) {
  const std::string tokenizer =
      " --tokenizer " + Source("tokenizer/testdata/reference_tokenizer.json");
  const std::string input = Write("a.jsonl", Jsonl(300));
  const std::string program(ULMUS_PROGRAM);
  const std::map<std::string, int64_t> widths = {{"u16", 2}, {"u32", 4}};
  for (const auto& [dtype, width] : widths) {
    const Output made = RunShell(program + " tokenize --json --dtype " + dtype + tokenizer +
                                 " --out " + At(dtype) + " " + input);
    ASSERT_EQ(made.exit_code, 0) << made.text;
    const json report = json::parse(made.text);
    EXPECT_EQ(report["dtype"], dtype);
    EXPECT_EQ(*FileSizeBytes(At(dtype + "-00000.npy")), report["tokens"].get<int64_t>() * width);
  }
  const std::string bytes = *ReadFile(At("u16-00000.npy"));
  Write("even.npy", bytes.substr(0, bytes.size() / 4 * 4));
  Write("odd.npy", bytes.substr(0, bytes.size() / 4 * 4 - 2));
  const std::string ids = " --vocab-size 5000 --eos 0 --pad 1";
  struct Case {
    const char* file;
    const char* dtype;
    const char* message;
  };
  for (const Case& c : {Case{"odd.npy", "u32", "not a whole number of u32 tokens"},
                        {"even.npy", "u32", "u16"},
                        {"u32-00000.npy", "u16", "u32"}}) {
    const Output output =
        RunShell(program + " data stats " + At(c.file) + " --dtype " + c.dtype + ids);
    EXPECT_THAT(output.exit_code, testing::AnyOf(2, 3)) << output.text;
    EXPECT_THAT(output.text, testing::AllOf(HasSubstr(c.file), HasSubstr(c.message)));
  }
}

// Case B18: with its manifest, no damage to a token file goes unseen.
TEST_F(Tokenize, ItsManifestFindsEveryDamage) {
  ASSERT_EQ(Run("out", Parquet("brotli")).exit_code, 0);
  const std::string stats =
      std::string(ULMUS_PROGRAM) + " data stats " + At("out.manifest.json") + " --verify";
  ASSERT_EQ(RunShell(stats).exit_code, 0);
  for (const char* name : {"out-00000.npy", "out-00000.csv.gz"}) {
    const std::string whole = *ReadFile(At(name));
    std::string flipped = whole;
    flipped[whole.size() / 3] = static_cast<char>(flipped[whole.size() / 3] ^ 1);
    for (const std::string& bytes :
         {whole.substr(0, whole.size() - 1), whole.substr(0, whole.size() - 4),
          whole.substr(0, whole.size() / 2), flipped, whole + std::string(4, '\0')}) {
      Write(name, bytes);
      const Output output = RunShell(stats);
      EXPECT_EQ(output.exit_code, 3) << name << " of " << bytes.size() << ": " << output.text;
      EXPECT_THAT(output.text, HasSubstr(name));
    }
    Write(name, whole);
  }
  ASSERT_EQ(RunShell(stats).exit_code, 0);
}

// Case B18: a flipped byte is found at any start, not only when all is read.
TEST_F(Tokenize, ItsManifestFindsAFlippedByteAtEveryStart) {
  ASSERT_EQ(Run("out", Parquet("brotli")).exit_code, 0);
  const std::string program = std::string(ULMUS_PROGRAM) + " data ";
  const std::string manifest = At("out.manifest.json");
  const std::string commands[] = {
      program + "stats " + manifest, program + "show " + manifest + " --sequence-length 64",
      program + "index " + manifest + " --sequence-length 64 --out " + At("i.json")};
  for (const std::string& command : commands) {
    const Output output = RunShell(command);
    EXPECT_EQ(output.exit_code, 0) << command << ": " << output.text;
  }
  for (const char* name : {"out-00000.npy", "out-00000.csv.gz"}) {
    const std::string whole = *ReadFile(At(name));
    std::string flipped = whole;
    flipped[whole.size() / 3] = static_cast<char>(flipped[whole.size() / 3] ^ 1);
    Write(name, flipped);
    for (const std::string& command : commands) {
      const Output output = RunShell(command);
      EXPECT_EQ(output.exit_code, 3) << command << ": " << output.text;
      EXPECT_THAT(output.text, HasSubstr(std::string(name) + ": sample hash "));
    }
    Write(name, whole);
  }
}

}  // namespace
}  // namespace ulmus::apps
