// `ulmus convert` from outside, on a tiny OLMo 3 with grouped queries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "apps/testing/run_program.h"
#include "base/file.h"
#include "checkpoint/hf_directory.h"
#include "checkpoint/open.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/testing/memory_source.h"

namespace ulmus::apps {
namespace {

using checkpoint::MemorySource;
using checkpoint::TensorInfo;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kV = 40, kD = 32, kF = 48, kQ = 32, kKV = 16;

Output RunConvert(const std::string& arguments, const std::string& prefix = "") {
  return RunShell("sh -c '" + prefix + ULMUS_PROGRAM + " convert " + arguments + "'");
}

std::string ConfigJson(bool tied) {
  return fmt::format(R"({{
  "architectures": ["Olmo3ForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "eos_token_id": 38,
  "hidden_act": "silu",
  "hidden_size": {},
  "initializer_range": 0.02,
  "intermediate_size": {},
  "layer_types": ["sliding_attention", "full_attention"],
  "max_position_embeddings": 64,
  "model_type": "olmo3",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pad_token_id": 37,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 500000,
  "sliding_window": 4,
  "tie_word_embeddings": {},
  "torch_dtype": "bfloat16",
  "use_cache": false,
  "vocab_size": {}
}}
)",
                     kD, kF, tied, kV);
}

std::map<std::string, Shape> ModelShapes(bool tied = false) {
  std::map<std::string, Shape> shapes = {{"model.embed_tokens.weight", {kV, kD}},
                                         {"model.norm.weight", {kD}}};
  if (!tied) shapes["lm_head.weight"] = {kV, kD};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    shapes[prefix + "self_attn.q_proj.weight"] = {kQ, kD};
    shapes[prefix + "self_attn.k_proj.weight"] = {kKV, kD};
    shapes[prefix + "self_attn.v_proj.weight"] = {kKV, kD};
    shapes[prefix + "self_attn.o_proj.weight"] = {kD, kQ};
    shapes[prefix + "self_attn.q_norm.weight"] = {kQ};
    shapes[prefix + "self_attn.k_norm.weight"] = {kKV};
    shapes[prefix + "mlp.gate_proj.weight"] = {kF, kD};
    shapes[prefix + "mlp.up_proj.weight"] = {kF, kD};
    shapes[prefix + "mlp.down_proj.weight"] = {kD, kF};
    shapes[prefix + "post_attention_layernorm.weight"] = {kD};
    shapes[prefix + "post_feedforward_layernorm.weight"] = {kD};
  }
  return shapes;
}

// Any bits as weights, other ones for every name. Norm gains are not 1.
MemorySource RandomTensors(const std::map<std::string, TensorType>& types) {
  std::map<std::string, HostTensor> tensors;
  uint32_t state = 12345;
  for (const auto& [name, type] : types) {
    HostTensor tensor(type);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      tensor.Set(i, static_cast<double>(static_cast<int32_t>(state)) / (1u << 30));
    }
    tensors.emplace(name, std::move(tensor));
  }
  return MemorySource(std::move(tensors));
}

std::map<std::string, TensorType> Typed(const std::map<std::string, Shape>& shapes, DType dtype) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, shape] : shapes) types[name] = {dtype, shape};
  return types;
}

std::map<std::string, std::string> Contents(const Path& folder) {
  std::map<std::string, std::string> contents;
  const std::vector<std::string> names = ListDirectory(folder).value();
  for (const std::string& name : names) contents[name] = ReadFile(folder / name).value();
  return contents;
}

class Convert : public testing::Test {
 protected:
  Path At(const std::string& name) const { return temp_.path() / name; }
  std::string Arg(const std::string& name) const { return At(name).string() + " "; }

  void WriteModel(const std::string& name, const std::map<std::string, TensorType>& types,
                  int64_t max_shard_bytes = 1'000'000'000, bool tied = false) {
    const MemorySource source = RandomTensors(types);
    const auto layout =
        checkpoint::PlanHfLayout(source.tensors(), {.max_shard_bytes = max_shard_bytes}).value();
    auto sink = std::move(checkpoint::HfSink::Create(At(name), layout, {}).value());
    for (const TensorInfo& tensor : layout.Tensors()) {
      ASSERT_TRUE(sink->Begin(tensor).ok());
      ASSERT_TRUE(sink->Append(source.value(*FindTensor(source, tensor.name)).bytes()).ok());
    }
    ASSERT_TRUE(sink->AddSideFile("config.json", ConfigJson(tied)).ok());
    ASSERT_TRUE(sink->AddSideFile("tokenizer.json", "{\"tokens\": []}").ok());
    ASSERT_TRUE(sink->AddSideFile("generation_config.json", "{ }").ok());
    ASSERT_TRUE(sink->Commit().ok());
  }
  void WriteModel(const std::string& name, int64_t max_shard_bytes = 1'000'000'000) {
    WriteModel(name, Typed(ModelShapes(), DType::kBF16), max_shard_bytes);
  }
  void ExpectNothingAt(const std::string& name) {
    EXPECT_FALSE(std::filesystem::exists(At(name)));
    EXPECT_FALSE(std::filesystem::exists(At(name + ".incomplete")));
  }
  // Bytes of one tensor of an hf directory.
  std::vector<std::byte> Tensor(const std::string& folder, const std::string& name) {
    const auto source = checkpoint::HfDirectory::Open(At(folder));
    EXPECT_TRUE(source.ok()) << source.status().message();
    const int64_t index = FindTensor(**source, name).value();
    std::vector<std::byte> bytes(
        static_cast<size_t>((*source)->tensors()[static_cast<size_t>(index)].type.size_bytes()));
    EXPECT_TRUE((*source)->Read(index, 0, bytes).ok());
    return bytes;
  }
  TensorType TypeOf(const std::string& folder, const std::string& name) {
    const auto source = checkpoint::HfDirectory::Open(At(folder));
    EXPECT_TRUE(source.ok()) << source.status().message();
    return (*source)->tensors()[static_cast<size_t>(FindTensor(**source, name).value())].type;
  }
  const TempDir temp_;
};

TEST_F(Convert, ThereAndBackGivesTheSameBytes) {
  for (int64_t limit : {1'000'000'000, 4000}) {
    const std::string from = fmt::format("from{}", limit), to = fmt::format("to{}", limit);
    WriteModel(from, limit);
    const Output there = RunConvert(Arg(from) + Arg("ulmus" + to) + "--json");
    ASSERT_EQ(there.exit_code, 0) << there.text;
    const json report = json::parse(there.text, nullptr, false);
    EXPECT_EQ(report["from"], "hf");
    EXPECT_EQ(report["to"], "ulmus");
    EXPECT_EQ(report["tensors"], ModelShapes().size());
    EXPECT_GT(report["bytes"], 0);
    EXPECT_GE(report["seconds"], 0);
    const Output back = RunConvert(Arg("ulmus" + to) + Arg(to));
    ASSERT_EQ(back.exit_code, 0) << back.text;
    EXPECT_EQ(Contents(At(to)), Contents(At(from)));
  }
}

TEST_F(Convert, AFileLaidOutByAnotherProgramComesBackByteForByte) {
  WriteModel("plain");
  // The same tensors under a header with other spacing and its keys reversed.
  const std::string bytes = ReadFile(At("plain") / "model.safetensors").value();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const size_t data_begin = 8 + length;
  const json header = json::parse(bytes.substr(8, length));
  std::string text = "{";
  for (auto it = header.rbegin(); it != header.rend(); ++it)
    text += (text.size() > 1 ? " ,\n" : "") + json(it.key()).dump() + " : " + it.value().dump(1);
  text += "}   ";
  length = text.size();
  std::string rewritten(8, '\0');
  std::memcpy(rewritten.data(), &length, 8);
  rewritten += text + bytes.substr(data_begin);
  std::ofstream(At("plain") / "model.safetensors", std::ios::binary) << rewritten;

  ASSERT_EQ(RunConvert(Arg("plain") + Arg("u")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("u") + Arg("back")).exit_code, 0);
  EXPECT_EQ(Contents(At("back")), Contents(At("plain")));
}

TEST_F(Convert, WideningAndPaddingComeBackByteForByte) {
  WriteModel("from", 4000);
  ASSERT_EQ(RunConvert(Arg("from") + Arg("u") + "--dtype f32 --pad-vocab 64").exit_code, 0);
  const Output back = RunConvert(Arg("u") + Arg("to") + "--dtype bf16");
  ASSERT_EQ(back.exit_code, 0) << back.text;
  EXPECT_EQ(Contents(At("to")), Contents(At("from")));
}

TEST_F(Convert, VocabularyRowsAreAddedAsZerosAndCutAgain) {
  WriteModel("from");
  ASSERT_EQ(RunConvert(Arg("from") + Arg("more") + "--format hf --vocab-size 48").exit_code, 0);
  EXPECT_EQ(json::parse(ReadFile(At("more") / "config.json").value())["vocab_size"], 48);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    EXPECT_EQ(TypeOf("more", name).shape, (Shape{48, kD}));
    const std::vector<std::byte> before = Tensor("from", name), after = Tensor("more", name);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
    EXPECT_TRUE(std::all_of(after.begin() + static_cast<std::ptrdiff_t>(before.size()), after.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  ASSERT_EQ(RunConvert(Arg("more") + Arg("less") + "--format hf --vocab-size 40").exit_code, 0);
  EXPECT_EQ(Tensor("less", "lm_head.weight"), Tensor("from", "lm_head.weight"));

  const Output cut = RunConvert(Arg("from") + Arg("cut") + "--format hf --vocab-size 38");
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.text, HasSubstr("eos_token_id 38"));
  EXPECT_EQ(RunConvert(Arg("from") + Arg("cut") + "--format hf --pad-vocab 64").exit_code, 2);
  ExpectNothingAt("cut");
}

TEST_F(Convert, NumbersOutOfRangeAreRefusedWithTheRange) {
  WriteModel("from");
  const std::string huge = "9223372036854775807";
  for (const char* option : {"--vocab-size", "--pad-vocab"}) {
    for (const std::string& value : {std::string("0"), std::string("-1"), huge, "1" + huge}) {
      const Output output =
          RunConvert(Arg("from") + Arg("to") + fmt::format("{} {}", option, value));
      EXPECT_EQ(output.exit_code, 2) << output.text;
      EXPECT_THAT(output.text, HasSubstr("expected a whole number from 1 to 2147483647"));
    }
  }
  EXPECT_EQ(RunConvert(Arg("from") + "\"\"").exit_code, 2);
  ExpectNothingAt("to");
}

TEST_F(Convert, HeadersHaveTheTypeAskedForAndIntegersStay) {
  auto types = Typed(ModelShapes(), DType::kBF16);
  types["buffers.steps"] = {DType::kI64, {3}};
  types["buffers.mask"] = {DType::kBool, {5}};
  WriteModel("from", types);
  const Output refused = RunConvert(Arg("from") + Arg("f32") + "--format hf --dtype float32");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("extra"), HasSubstr("buffers.steps")));
  const Output done =
      RunConvert(Arg("from") + Arg("f32") + "--format hf --dtype float32 --keep-extra");
  ASSERT_EQ(done.exit_code, 0) << done.text;
  EXPECT_EQ(TypeOf("f32", "lm_head.weight").dtype, DType::kF32);
  EXPECT_EQ(Tensor("f32", "buffers.steps"), Tensor("from", "buffers.steps"));
  EXPECT_EQ(Tensor("f32", "buffers.mask"), Tensor("from", "buffers.mask"));
  EXPECT_EQ(json::parse(ReadFile(At("f32") / "config.json").value())["torch_dtype"], "float32");

  WriteModel("wide", Typed(ModelShapes(), DType::kF32));
  ASSERT_EQ(RunConvert(Arg("wide") + Arg("narrow") + "--format hf --dtype bf16").exit_code, 0);
  const std::vector<std::byte> wide = Tensor("wide", "lm_head.weight");
  const std::vector<std::byte> narrow = Tensor("narrow", "lm_head.weight");
  for (size_t i = 0; i < narrow.size() / 2; ++i) {
    float value;
    uint16_t bits;
    std::memcpy(&value, wide.data() + 4 * i, 4);
    std::memcpy(&bits, narrow.data() + 2 * i, 2);
    ASSERT_EQ(bits, BF16(value).bits) << i;
  }
  EXPECT_EQ(RunConvert(Arg("wide") + Arg("x") + "--dtype i8").exit_code, 2);
}

TEST_F(Convert, MissingExtraAndReshapedTensorsAreOneTable) {
  auto types = Typed(ModelShapes(), DType::kBF16);
  types.erase("model.layers.1.self_attn.k_norm.weight");
  std::swap(types["model.layers.0.self_attn.q_norm.weight"],
            types["model.layers.0.self_attn.k_norm.weight"]);
  types["model.layers.0.input_layernorm.weight"] = {DType::kBF16, {kD}};
  types["model.norm.weight"].dtype = DType::kI32;
  WriteModel("from", types);
  for (const char* format : {"hf", "ulmus"}) {
    const Output output = RunConvert(Arg("from") + Arg("to") + "--json --format " + format);
    EXPECT_EQ(output.exit_code, 3);
    EXPECT_THAT(output.text,
                AllOf(HasSubstr("5 tensors do not fit"), HasSubstr("found [16], expected [32]"),
                      HasSubstr("found [32], expected [16]"), HasSubstr("found i32"),
                      HasSubstr("input_layernorm")));
    const size_t begin = output.text.find("{\n");  // beside the table of standard error
    const json report = json::parse(output.text.substr(begin, output.text.rfind("\n}") + 2 - begin),
                                    nullptr, false);
    ASSERT_TRUE(report.is_object()) << output.text;
    std::vector<std::string> kinds;
    for (const json& m : report["mismatches"]) kinds.push_back(m["kind"]);
    EXPECT_THAT(kinds, testing::ElementsAre("dtype", "extra", "missing", "reshaped", "reshaped"));
    ExpectNothingAt("to");
  }
}

bool IsNorm(const std::string& name) { return name.find("norm") != std::string::npos; }

TEST_F(Convert, NormGainsSurviveTheRoundTrip) {
  WriteModel("from");
  ASSERT_EQ(RunConvert(Arg("from") + Arg("u")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("u") + Arg("to") + "--max-shard-size 3KB").exit_code, 0);
  for (const auto& [name, shape] : ModelShapes()) {
    if (!IsNorm(name)) continue;
    EXPECT_EQ(Tensor("to", name), Tensor("from", name)) << name;
  }
}

// A gain is as wide as its whole projection: 32 for queries, 16 for keys, heads of 8.
TEST_F(Convert, NormGainsThatAreAbsentOrOfAnotherWidthAreRefused) {
  const std::string q = "model.layers.1.self_attn.q_norm.weight",
                    k = "model.layers.0.self_attn.k_norm.weight";
  const struct {
    std::string name;
    std::optional<Shape> shape;  // none: left out
    const char* message;
  } rows[] = {{q, {}, "missing"},
              {k, {}, "missing"},
              {"model.norm.weight", {}, "missing"},
              {"model.layers.1.post_feedforward_layernorm.weight", {}, "missing"},
              {q, Shape{8}, "found [8], expected [32]"},       // one gain for all heads
              {k, Shape{32}, "found [32], expected [16]"},     // as many heads as queries
              {k, Shape{2, 8}, "found [2,8], expected [16]"},  // the same bytes
              {q, Shape{1, 32}, "found [1,32], expected [32]"}};
  for (const auto& row : rows) {
    auto shapes = ModelShapes();
    shapes.erase(row.name);
    if (row.shape) shapes[row.name] = *row.shape;
    std::filesystem::remove_all(At("from"));
    WriteModel("from", Typed(shapes, DType::kBF16));
    const Output output = RunConvert(Arg("from") + Arg("to"));
    EXPECT_EQ(output.exit_code, 3) << output.text;
    EXPECT_THAT(output.text, AllOf(HasSubstr(row.name), HasSubstr(row.message)));
    ExpectNothingAt("to");
  }
}

// Every float type to every other, both ways: what headers and config.json say is what was asked.
TEST_F(Convert, AllHeadersHaveTheTypeAskedForInBothDirections) {
  for (const DType from : {DType::kBF16, DType::kF32}) {
    for (const char* name : {"from", "u"}) std::filesystem::remove_all(At(name));
    WriteModel("from", Typed(ModelShapes(), from));
    ASSERT_EQ(RunConvert(Arg("from") + Arg("u")).exit_code, 0);
    for (const DType to : {DType::kBF16, DType::kF16, DType::kF32}) {
      const std::string dtype = "--dtype " + std::string(Name(to));
      for (const char* name : {"late", "early"}) std::filesystem::remove_all(At(name));
      ASSERT_EQ(RunConvert(Arg("u") + Arg("late") + dtype).exit_code, 0);
      ASSERT_EQ(RunConvert(Arg("from") + Arg("early") + dtype + " --format hf").exit_code, 0);
      for (const char* folder : {"late", "early"}) {
        const auto source = checkpoint::HfDirectory::Open(At(folder));
        ASSERT_TRUE(source.ok()) << source.status().message();
        ASSERT_EQ((*source)->tensors().size(), ModelShapes().size());
        for (const TensorInfo& tensor : (*source)->tensors())
          EXPECT_EQ(tensor.type.dtype, to) << folder << " " << tensor.name;
      }
      EXPECT_EQ(Tensor("late", "model.norm.weight"), Tensor("early", "model.norm.weight"));
    }
  }
}

// The index names the files that are there and no other, none of them empty, and all tensors.
TEST_F(Convert, IndexAndFilesAgreeForTiedAndUntiedHeads) {
  for (const bool tied : {false, true}) {
    for (const char* name : {"from", "u"}) std::filesystem::remove_all(At(name));
    WriteModel("from", Typed(ModelShapes(tied), DType::kBF16), 1'000'000'000, tied);
    ASSERT_EQ(RunConvert(Arg("from") + Arg("u")).exit_code, 0);
    for (const char* size : {"1", "3KB", "5000"}) {
      std::filesystem::remove_all(At("to"));
      ASSERT_EQ(RunConvert(Arg("u") + Arg("to") + "--max-shard-size " + size).exit_code, 0);
      const json index = json::parse(ReadFile(At("to") / "model.safetensors.index.json").value());
      std::map<std::string, int> tensors_of, files;
      for (const auto& [tensor, file] : index["weight_map"].items()) {
        EXPECT_TRUE(ModelShapes(tied).contains(tensor)) << tensor;
        ++tensors_of[file.get<std::string>()];
      }
      EXPECT_EQ(index["weight_map"].size(), ModelShapes(tied).size());
      int64_t total = 0;
      for (const auto& [name, shape] : ModelShapes(tied)) total += 2 * shape.num_elements();
      EXPECT_EQ(index["metadata"]["total_size"], total);
      for (const auto& [name, bytes] : Contents(At("to"))) {
        if (!name.ends_with(".safetensors")) continue;
        const auto file = checkpoint::SafetensorsSource::Open(At("to") / name);
        ASSERT_TRUE(file.ok()) << file.status().message();
        files[name] = static_cast<int>((*file)->tensors().size());
      }
      EXPECT_EQ(files, tensors_of) << "tied " << tied << " size " << size;
    }
  }
}

TEST_F(Convert, ATiedModelHasNoHeadAndAnUntiedOneMust) {
  WriteModel("tied", Typed(ModelShapes(/*tied=*/true), DType::kBF16), 4000, /*tied=*/true);
  ASSERT_EQ(RunConvert(Arg("tied") + Arg("u")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("u") + Arg("again") + "--max-shard-size 5000").exit_code, 0);
  const json index = json::parse(ReadFile(At("again") / "model.safetensors.index.json").value());
  EXPECT_FALSE(index["weight_map"].contains("lm_head.weight"));
  int64_t total = 0;
  for (const auto& [name, shape] : ModelShapes(true)) total += 2 * shape.num_elements();
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_TRUE(checkpoint::HfDirectory::Open(At("again")).ok());

  WriteModel("both", Typed(ModelShapes(/*tied=*/false), DType::kBF16), 4000, /*tied=*/true);
  const Output extra = RunConvert(Arg("both") + Arg("x"));
  EXPECT_EQ(extra.exit_code, 3);
  EXPECT_THAT(extra.text, HasSubstr("tie_word_embeddings true"));
  WriteModel("none", Typed(ModelShapes(/*tied=*/true), DType::kBF16), 4000, /*tied=*/false);
  const Output missing = RunConvert(Arg("none") + Arg("x"));
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.text, HasSubstr("never taken from the embedding"));
}

TEST_F(Convert, AnExistingDestinationIsReplacedOnlyWhenAskedAndOnlyWeights) {
  WriteModel("from");
  std::filesystem::create_directory(At("home"));
  std::ofstream(At("home") / "precious") << "x";
  EXPECT_EQ(RunConvert(Arg("from") + Arg("home") + "--format hf").exit_code, 1);
  const Output refused = RunConvert(Arg("from") + Arg("home") + "--format hf --overwrite");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.text, HasSubstr("does not touch it"));
  EXPECT_TRUE(std::filesystem::exists(At("home") / "precious"));
  ASSERT_EQ(RunConvert(Arg("from") + Arg("to") + "--format hf").exit_code, 0);
  EXPECT_EQ(RunConvert(Arg("from") + Arg("to") + "--format hf --dtype f32").exit_code, 1);
  EXPECT_EQ(RunConvert(Arg("from") + Arg("to") + "--format hf --dtype f32 --overwrite").exit_code,
            0);
  EXPECT_EQ(TypeOf("to", "lm_head.weight").dtype, DType::kF32);
  const Output same = RunConvert(Arg("from") + Arg("from") + "--format hf --overwrite");
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_THAT(same.text, HasSubstr("SRC is DST"));
}

TEST_F(Convert, AFullDiskLeavesNothing) {
  WriteModel("from");
  // 8 blocks of 512 bytes: less than the weights.
  for (const char* format : {"hf", "ulmus"}) {
    const Output output =
        RunConvert(Arg("from") + Arg("to") + "--format " + format, "ulimit -f 8; ");
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_THAT(output.text, HasSubstr("error: "));
    const std::vector<std::string> names = ListDirectory(temp_.path()).value();
    EXPECT_THAT(names, testing::ElementsAre("from")) << format;
  }
}

TEST_F(Convert, MoreThanTheDiskHoldsIsRefusedBeforeAnythingIsWritten) {
  // A hole of an embedding, which takes no space itself.
  const std::string huge = "buffers.huge";
  auto types = Typed(ModelShapes(), DType::kBF16);
  WriteModel("from", types);
  types[huge] = {DType::kF32, {FreeDiskBytes(temp_.path()).value() / 4 + (1 << 20)}};
  std::vector<TensorInfo> tensors;
  for (const auto& [name, type] : types) tensors.push_back({name, type});
  const auto layout = checkpoint::PlanHfLayout(tensors, {.max_shard_bytes = int64_t{1} << 60});
  const std::string& header = layout->files[0].header_text;
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  const Path file = At("from") / "model.safetensors";
  std::ofstream(file, std::ios::binary) << bytes << header;
  ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(8 + length) + layout->TotalTensorBytes()), 0);
  for (const char* format : {"hf", "ulmus"}) {
    const Output output = RunConvert(Arg("from") + Arg("to") + "--keep-extra --format " + format);
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_THAT(output.text, AllOf(HasSubstr("bytes needed"), HasSubstr("free")));
    ExpectNothingAt("to");
  }
}

// 64 MB of embedding, a hole in the file: long enough to be struck while writing.
class ConvertCutOff : public Convert {
 protected:
  void SetUp() override {
    auto shapes = ModelShapes(/*tied=*/true);
    constexpr int64_t kRows = 1'000'000;
    shapes["model.embed_tokens.weight"] = {kRows, kD};
    WriteModel("from", Typed(shapes, DType::kBF16), 1'000'000'000, /*tied=*/true);
    json config = json::parse(ReadFile(At("from") / "config.json").value());
    config["vocab_size"] = kRows;
    std::ofstream(At("from") / "config.json") << config;
  }

  // How a conversion to "to" ended that got `signal` once it had begun to write, `delay` later.
  int EndAfter(int signal, const char* format, std::chrono::microseconds delay = {}) {
    const pid_t child = fork();
    if (child == 0) {
      execl(ULMUS_PROGRAM, "ulmus", "convert", At("from").c_str(), At("to").c_str(), "--format",
            format, nullptr);
      _exit(127);
    }
    int status = 0;
    pid_t ended = 0;
    while (!std::filesystem::exists(At("to.incomplete")) && ended == 0) {
      ended = waitpid(child, &status, WNOHANG);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(delay);
    if (ended == 0) {
      kill(child, signal);
      waitpid(child, &status, 0);
    }
    return status;
  }
};

TEST_F(ConvertCutOff, ASignalLeavesNothingAndAsksForAnotherRun) {
  int stopped = 0;
  for (const auto& [signal, format] :
       {std::pair(SIGINT, "hf"), std::pair(SIGTERM, "ulmus"), std::pair(SIGHUP, "hf")}) {
    const int status = EndAfter(signal, format);
    ASSERT_TRUE(WIFEXITED(status)) << signal;
    EXPECT_FALSE(std::filesystem::exists(At("to.incomplete")));
    // A machine that was faster than the signal has a complete directory.
    EXPECT_EQ(WEXITSTATUS(status), std::filesystem::exists(At("to")) ? kExitOk : kExitRequeue);
    if (std::filesystem::exists(At("to"))) {
      EXPECT_TRUE(checkpoint::OpenSource(At("to")).ok());
    }
    stopped += WEXITSTATUS(status) == kExitRequeue ? 1 : 0;
    std::filesystem::remove_all(At("to"));
  }
  EXPECT_GE(stopped, 1) << "the machine is too fast for this test";
}

TEST_F(ConvertCutOff, KilledAtAnyInstantNothingOrAllIsThereAndTheNextRunSucceeds) {
  for (const char* format : {"hf", "ulmus"}) {
    int killed = 0;
    for (int round = 0; round < 6; ++round) {
      const int status = EndAfter(SIGKILL, format, std::chrono::milliseconds(8 * round));
      killed += WIFSIGNALED(status) ? 1 : 0;
      if (!std::filesystem::exists(At("to"))) continue;
      EXPECT_TRUE(checkpoint::OpenSource(At("to")).ok()) << format;
      std::filesystem::remove_all(At("to"));
    }
    EXPECT_GE(killed, 1) << "the machine is too fast for this test's delays";
    const Output again = RunConvert(Arg("from") + Arg("to") + "--format " + format);
    ASSERT_EQ(again.exit_code, 0) << again.text;
    EXPECT_TRUE(checkpoint::OpenSource(At("to")).ok());
    EXPECT_FALSE(std::filesystem::exists(At("to.incomplete")));
    std::filesystem::remove_all(At("to"));
  }
}

TEST_F(Convert, FoldersAboveTheDestinationAreMade) {
  WriteModel("from");
  for (const char* to : {"a/b/c", "./d/e/", "f"}) {
    const Output output = RunConvert(Arg("from") + to, "cd " + temp_.path().string() + " && ");
    EXPECT_EQ(output.exit_code, 0) << output.text;
    EXPECT_TRUE(checkpoint::OpenSource(At(to)).ok()) << to;
  }
}

TEST_F(Convert, SideFilesAreCarriedByteForByte) {
  WriteModel("from");
  const std::map<std::string, std::string> files = {
      {"tokenizer.json", R"({"a": 1, "a": 2})"},  // not ours to read, however odd
      {"tokenizer_config.json", "{}\n\n"},
      {"special_tokens_map.json", "\xff\xfe"},
      {"vocab.json", ""},
      {"merges.txt", "a b\r\n"},
      {"chat_template.jinja", "{{ x }}"}};
  for (const auto& [name, text] : files) std::ofstream(At("from") / name) << text;
  ASSERT_EQ(RunConvert(Arg("from") + Arg("u")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("u") + Arg("back")).exit_code, 0);
  EXPECT_EQ(Contents(At("back")), Contents(At("from")));
}

TEST_F(Convert, HostileDirectoriesAreRefusedAsDamaged) {
  WriteModel("from", 4000);
  std::filesystem::create_symlink("/etc/passwd", At("from") / "vocab.json");
  const Output link = RunConvert(Arg("from") + Arg("to"));
  EXPECT_EQ(link.exit_code, 3);
  EXPECT_THAT(link.text, HasSubstr("leads out of its folder"));
  std::filesystem::remove(At("from") / "vocab.json");
  std::ofstream(At("from") / "model.safetensors.index.json")
      << R"({"weight_map":{"lm_head.weight":"../../etc/passwd.safetensors"}})";
  const Output path = RunConvert(Arg("from") + Arg("to"));
  EXPECT_EQ(path.exit_code, 3);
  EXPECT_THAT(path.text, AllOf(HasSubstr("lm_head.weight"), HasSubstr("path separator")));
  ExpectNothingAt("to");
}

TEST_F(Convert, NamesOfForeignFilesDoNotReachTheTerminalRaw) {
  WriteModel("from", 2000);
  const Path index = At("from") / "model.safetensors.index.json";
  json text = json::parse(ReadFile(index).value());
  text["weight_map"]["lm_head.weight"] = "a\u202eb\u009b.safetensors";  // absent
  std::ofstream(index) << text;
  const Output output = RunConvert(Arg("from") + Arg("to"));
  EXPECT_NE(output.exit_code, 0);
  EXPECT_THAT(output.text, HasSubstr("a\\u202eb\\u009b.safetensors"));
  EXPECT_THAT(output.text, Not(HasSubstr("\u202e")));
}

TEST_F(Convert, SaysWhatAPathIsThatItDoesNotRead) {
  const auto refuse = [&](const std::string& name, const char* mark, const char* message) {
    std::filesystem::create_directories(At(name));
    std::ofstream(At(name) / mark) << "{}";
    const Output output = RunConvert(Arg(name) + Arg("to"));
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_THAT(output.text, AllOf(HasSubstr(message), Not(HasSubstr("not yet"))));
  };
  refuse("orbax", "_METADATA",
         "reads neither. Use another checkpoint, or export it to a Hugging Face");
  refuse("torch", "__0_0.distcp", "PyTorch distributed checkpoint");
  refuse("pickle", "pytorch_model.bin", "never read");
  refuse("else", "readme", "neither a Hugging Face directory");
  EXPECT_THAT(RunConvert(Arg("nowhere") + Arg("to")).text, HasSubstr("no such file or directory"));
}

TEST_F(Convert, OneFileNeedsAConfig) {
  WriteModel("from");
  std::filesystem::create_directory(At("loose"));
  std::filesystem::copy(At("from") / "model.safetensors", At("loose") / "w.safetensors");
  const Output without = RunConvert(Arg("loose/w.safetensors") + Arg("to"));
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.text, HasSubstr("--config"));
  const Output with = RunConvert(Arg("loose/w.safetensors") + Arg("to") + "--format hf --config " +
                                 (At("from") / "config.json").string());
  ASSERT_EQ(with.exit_code, 0) << with.text;
  EXPECT_EQ(ReadFile(At("to") / "model.safetensors").value(),
            ReadFile(At("from") / "model.safetensors").value());
}

TEST_F(Convert, ARunDirectoryGivesItsLatestWholeCheckpoint) {
  WriteModel("old");
  WriteModel("new", Typed(ModelShapes(), DType::kF32));
  std::filesystem::create_directories(At("run/checkpoints"));
  ASSERT_EQ(RunConvert(Arg("old") + Arg("run/checkpoints/step-00000002")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("new") + Arg("run/checkpoints/step-00000010")).exit_code, 0);
  ASSERT_EQ(RunConvert(Arg("run") + Arg("a") + "--format hf").exit_code, 0);
  EXPECT_EQ(TypeOf("a", "lm_head.weight").dtype, DType::kF32);
  std::ofstream(At("run/checkpoints/step-00000010/manifest.json")) << "{";
  const Output fallen = RunConvert(Arg("run") + Arg("b") + "--format hf");
  ASSERT_EQ(fallen.exit_code, 0) << fallen.text;
  EXPECT_THAT(fallen.text, HasSubstr("passed over: "));
  EXPECT_EQ(TypeOf("b", "lm_head.weight").dtype, DType::kBF16);
}

}  // namespace
}  // namespace ulmus::apps
