#include "base/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/recipe_struct.h"
#include "base/recipe_toml.h"

namespace ulmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Schema TestSchema() {
  Schema source;
  source.String("path", std::nullopt, {.help = "token files"})
      .Float("weight", 1.0, {.help = "share of the mixture", .above = 0})
      .Strings("filter.names", std::vector<std::string>{}, {.help = "filters to apply"});
  Schema schema;
  schema.String("name", "", {.help = "shown in reports"})
      .Int("train.steps", std::nullopt, {.help = "optimizer steps", .min = 1})
      .Int("train.seed", 6198, {.help = "seed of everything"})
      .Float("optim.lr_peak", 3e-4, {.help = "learning rate after warm-up", .above = 0, .below = 1})
      .Float("optim.weight_decay", 0.1, {.help = "decoupled", .min = 0})
      .Floats("optim.betas", std::vector{0.9, 0.95}, {.help = "Adam's betas", .min = 0, .below = 1})
      .Int("model.num_layers", 32, {.help = "blocks", .min = 1})
      .Int("model.d_model", 4096,
           {.help = "width",
            .min = 1,
            .check =
                [](const RecipeValue& v) {
                  return std::get<int64_t>(v) % 8 == 0
                             ? Status()
                             : InvalidArgumentError("must be a multiple of 8");
                }})
      .String("model.dtype", "bf16", {.help = "compute dtype", .choices = {"bf16", "f32"}})
      .Bool("model.tied", false, {.help = "one table for input and output"})
      .Ints("model.rope.windows", std::vector<int64_t>{4096, -1},
            {.help = "window per layer of a group", .min = -1})
      .Strings("eval.tasks", std::vector<std::string>{}, {.help = "downstream tasks"})
      .Tables("data.sources", source, {.help = "what to read"});
  return schema;
}

constexpr const char* kPreset = R"(
locked = ["model"]
[train]
steps = 1000
[model]
num_layers = 16
[optim]
lr_peak = 1e-3
)";

Result<Recipe> ResolveText(const std::string& text, std::vector<std::string> flags = {},
                           std::vector<RecipeError>* errors = nullptr) {
  const RecipeSource presets[] = {
      {"small", kPreset},
      {"smaller",
       "preset = \"small\"\nallow_override = [\"model.num_layers\"]\nmodel.num_layers = 4\n"},
      {"loop_a", "preset = \"loop_b\""},
      {"loop_b", "preset = \"loop_a\""}};
  return Recipe::Resolve(
      TestSchema(), {.file = {"run.toml", text}, .flags = std::move(flags), .presets = presets},
      errors);
}

Recipe Resolved(const std::string& text, std::vector<std::string> flags = {}) {
  Result<Recipe> recipe = ResolveText(text, std::move(flags));
  if (!recipe.ok()) ADD_FAILURE() << recipe.error().message();
  return *std::move(recipe);
}

TEST(Recipe, LaterLayersWinAndEveryValueKnowsItsOrigin) {
  const Recipe recipe =
      Resolved("preset = \"small\"\n[optim]\n  weight_decay = 0\n[train]\nsteps = 200\n",
               {"train.steps=300"});
  EXPECT_EQ(recipe.GetInt("train.steps"), 300);
  EXPECT_EQ(recipe.origin("train.steps").ToString(), "flag --set train.steps=300");
  EXPECT_EQ(recipe.GetFloat("optim.weight_decay"), 0.0);
  EXPECT_EQ(recipe.origin("optim.weight_decay").ToString(), "file run.toml:3:3");
  EXPECT_EQ(recipe.GetFloat("optim.lr_peak"), 1e-3);
  EXPECT_EQ(recipe.origin("optim.lr_peak").ToString(), "preset small:8:1");
  EXPECT_EQ(recipe.GetInt("train.seed"), 6198);
  EXPECT_EQ(recipe.origin("train.seed").ToString(), "default");
}

TEST(Recipe, PresetsStandUponPresets) {
  const Recipe recipe = Resolved("preset = \"smaller\"");
  EXPECT_EQ(recipe.GetInt("model.num_layers"), 4);
  EXPECT_EQ(recipe.origin("model.num_layers").ToString(), "preset smaller:3:7");
  EXPECT_EQ(recipe.GetInt("train.steps"), 1000);
}

TEST(Recipe, ReadsEveryType) {
  const Recipe recipe = Resolved(R"(
name = "caf\u00e9 \"x\""
train.steps = 1_000
[model]
tied = true
rope.windows = [1, 2]
[optim]
lr_peak = 1e-4
betas = [0, 0.5]
[eval]
tasks = ["a", "b"]
[[data.sources]]
path = "a/*.npy"
[[data.sources]]
path = "b"
weight = 2
filter.names = ["ngram"]
)");
  EXPECT_EQ(recipe.GetString("name"), "caf\xc3\xa9 \"x\"");
  EXPECT_EQ(recipe.GetInt("train.steps"), 1000);
  EXPECT_TRUE(recipe.GetBool("model.tied"));
  EXPECT_THAT(recipe.GetInts("model.rope.windows"), ElementsAre(1, 2));
  EXPECT_THAT(recipe.GetFloats("optim.betas"), ElementsAre(0.0, 0.5));
  EXPECT_THAT(recipe.GetStrings("eval.tasks"), ElementsAre("a", "b"));
  EXPECT_EQ(recipe.NumTables("data.sources"), 2);
  EXPECT_EQ(recipe.GetFloat("data.sources[0].weight"), 1.0);
  EXPECT_EQ(recipe.origin("data.sources[0].weight").ToString(), "default");
  EXPECT_EQ(recipe.GetFloat("data.sources[1].weight"), 2.0);
  EXPECT_EQ(recipe.origin("data.sources[1].weight").ToString(), "file run.toml:16:1");
  EXPECT_THAT(recipe.GetStrings("data.sources[1].filter.names"), ElementsAre("ngram"));
}

TEST(Recipe, FlagsTakeBareWordsForStringsAndTomlForTheRest) {
  const Recipe recipe =
      Resolved("train.steps = 1",
               {"name=a b=c", "model.dtype='f32'", "optim.betas=[0.5, 0.5]", "eval.tasks=[\"x\"]",
                "model.tied=true", "data.sources=[{path = \"p\", weight = 3}]"});
  EXPECT_EQ(recipe.GetString("name"), "a b=c");
  EXPECT_EQ(recipe.GetString("model.dtype"), "f32");
  EXPECT_THAT(recipe.GetFloats("optim.betas"), ElementsAre(0.5, 0.5));
  EXPECT_THAT(recipe.GetStrings("eval.tasks"), ElementsAre("x"));
  EXPECT_TRUE(recipe.GetBool("model.tied"));
  EXPECT_EQ(recipe.GetFloat("data.sources[0].weight"), 3.0);
}

TEST(Recipe, LaterArraysOfTablesReplaceEarlierOnesWhole) {
  const Recipe recipe =
      Resolved("train.steps = 1\n[[data.sources]]\npath = \"a\"\n[[data.sources]]\npath = \"b\"",
               {"data.sources=[{path = \"c\"}]"});
  EXPECT_EQ(recipe.NumTables("data.sources"), 1);
  EXPECT_EQ(recipe.GetString("data.sources[0].path"), "c");
  EXPECT_FALSE(recipe.entries().contains("data.sources[1].path"));
}

struct BadInput {
  const char* claim;
  std::string text;
  std::vector<std::string> flags;
  std::vector<std::string> wants;  // parts of the message, one error
};

TEST(Recipe, RefusesWithOriginAndRemedy) {
  const std::string ok = "train.steps = 1\n";
  const BadInput cases[] = {
      {"typo",
       ok + "[optim]\nlr_paek = 1e-4",
       {},
       {"file run.toml:3:1: unknown key `optim.lr_paek`; did you mean `optim.lr_peak`?"}},
      {"typo of a table, once",
       ok + "[optm]\nlr_peak = 1e-4\nbetas = [1]",
       {},
       {"run.toml:2:", "unknown key `optm`; did you mean `optim`?"}},
      {"key of another table",
       ok + "[model]\nlr_peak = 1e-4",
       {},
       {"did you mean `optim.lr_peak`?"}},
      {"stranger", ok + "qqqqqqqq = 1", {}, {"unknown key `qqqqqqqq`; no key has a similar name"}},
      {"typo in a flag",
       ok,
       {"train.sead=3"},
       {"flag --set train.sead=3: `train.sead` is not a key", "did you mean `train.seed`?"}},
      {"twice in a file",
       "[train]\nsteps = 1\nsteps = 2",
       {},
       {"file run.toml:3:", "steps", "correct the TOML"}},
      {"twice, dotted", "train.steps = 1\n[train]\nsteps = 2", {}, {"run.toml:"}},
      {"twice in flags",
       ok,
       {"train.seed=1", "train.seed=2"},
       {"flag --set train.seed=2: `train.seed` is given by another flag too (--set train.seed=1)"}},
      {"number as text",
       ok + "[optim]\nlr_peak = '1e-4 '",
       {},
       {"run.toml:3:1: `optim.lr_peak` wants a float, found the string \"1e-4 \"; remove the "
        "quotes"}},
      {"number as text in a flag",
       ok,
       {"optim.lr_peak='1e-4 '"},
       {"flag --set optim.lr_peak='1e-4 '", "remove the quotes"}},
      {"space in a flag", ok, {"optim.lr_peak=1e-4 "}, {"space around the value"}},
      {"space around a flag's key", ok, {" optim.lr_peak=1e-4"}, {"did you mean `optim.lr_peak`?"}},
      {"integer for string",
       ok + "name = 3",
       {},
       {"`name` wants a string, found the integer 3; put it in quotes"}},
      {"float for integer",
       "train.steps = 1e3",
       {},
       {"`train.steps` wants an integer, found the float 1000.0; write 1000"}},
      {"fraction for integer", "train.steps = 1.5", {}, {"write a whole number"}},
      {"integer for boolean",
       ok + "model.tied = 1",
       {},
       {"`model.tied` wants a boolean, found the integer 1; write true or false"}},
      {"boolean for integer", "train.steps = true", {}, {"found the boolean true"}},
      {"date", "train.steps = 2025-01-01", {}, {"found a date or time"}},
      {"table for value",
       "[train.steps]\nx = 1",
       {},
       {"`train.steps` wants an integer, found a table"}},
      {"value for table",
       ok + "optim = 3",
       {},
       {"`optim` is a table, found the integer 3; set the keys in it"}},
      {"table in a flag", ok, {"optim={lr_peak = 1}"}, {"it is a table: set the keys in it"}},
      {"scalar for array",
       ok + "eval.tasks = \"a\"",
       {},
       {"`eval.tasks` wants an array of strings, found the string \"a\"; put it in brackets"}},
      {"element of another type",
       ok + "eval.tasks = [\"a\",\n 2]",
       {},
       {"run.toml:3:2: `eval.tasks[1]` wants a string, found the integer 2"}},
      {"null", "train.steps =", {}, {"run.toml:1:", "correct the TOML"}},
      {"null in a flag", ok, {"train.seed="}, {"`train.seed` has no value"}},
      {"null by name", ok, {"train.seed=null"}, {"the value is not TOML", "it wants an integer"}},
      {"flag without value", ok, {"train.seed"}, {"flag --set train.seed: wants key=value"}},
      {"empty string",
       ok + "model.dtype = \"\"",
       {},
       {"`model.dtype` = \"\": must not be empty; leave the key out"}},
      {"empty array", ok + "optim.betas = []", {}, {"`optim.betas` = []: must not be empty"}},
      {"negative steps", "train.steps = -5", {}, {"`train.steps` = -5: must be >= 1"}},
      {"zero steps",
       "",
       {"train.steps=0"},
       {"flag --set train.steps=0: `train.steps` = 0: must be >= 1"}},
      {"zero where positive", ok + "optim.lr_peak = 0", {}, {"`optim.lr_peak` = 0.0: must be > 0"}},
      {"too large", ok + "optim.lr_peak = 1.0", {}, {"must be < 1"}},
      {"bad element", ok + "optim.betas = [0.9, 1.0]", {}, {"element 1: must be < 1"}},
      {"infinity", ok + "optim.lr_peak = inf", {}, {"`optim.lr_peak` = inf: must be finite"}},
      {"NaN", ok, {"optim.lr_peak=nan"}, {"must be finite"}},
      {"integer overflow", "train.steps = 9223372036854775808", {}, {"run.toml:1:"}},
      {"integer beyond exact floats",
       ok + "optim.weight_decay = 9007199254740993",
       {},
       {"not exact as a float"}},
      {"not a choice",
       ok + "model.dtype = \"fp16\"",
       {},
       {"`model.dtype` = \"fp16\": must be one of bf16, f32"}},
      {"owner's check",
       ok + "model.d_model = 12",
       {},
       {"`model.d_model` = 12: must be a multiple of 8"}},
      {"missing",
       "",
       {},
       {"`train.steps` is missing (optimizer steps); add it to the file or pass --set "
        "train.steps=VALUE"}},
      {"locked",
       "preset = \"small\"\nmodel.num_layers = 8",
       {},
       {"file run.toml:2:",
        "`model.num_layers` is locked at 16 (preset small:6:1; lock: preset small:2:1)",
        "allow_override = [\"model.num_layers\"]"}},
      {"locked at its default",
       "preset = \"small\"\nmodel.d_model = 8",
       {},
       {"`model.d_model` is locked at 4096 (default; lock: preset small:2:1)"}},
      {"locked, by flag",
       "preset = \"small\"",
       {"model.num_layers=8"},
       {"flag --set model.num_layers=8: `model.num_layers` is locked"}},
      {"allowing a stranger",
       ok + "allow_override = [\"model.layers\"]",
       {},
       {"`allow_override` names `model.layers`, which is no key", "did you mean"}},
      {"allowing by a string",
       ok + "allow_override = \"model\"",
       {},
       {"`allow_override` wants an array of keys"}},
      {"locking a stranger",
       ok + "locked = [\"modle\"]",
       {},
       {"`locked` names `modle`", "did you mean `model`?"}},
      {"unknown preset",
       "preset = \"smal\"",
       {},
       {"run.toml:1:1: preset \"smal\" does not exist; did you mean \"small\"?"}},
      {"preset of another type",
       "preset = 3",
       {},
       {"`preset` wants the name of a preset, found the integer 3"}},
      {"presets in a circle",
       "preset = \"loop_a\"",
       {},
       {"in a circle: loop_a -> loop_b -> loop_a"}},
      {"preset by flag", ok, {"preset=small"}, {"write it in the file"}},
      {"missing in a table of an array",
       ok + "[[data.sources]]\nweight = 1",
       {},
       {"run.toml:2:", "`data.sources[0].path` is missing"}},
      {"typo in a table of an array",
       ok + "[[data.sources]]\npath = \"a\"\nweigth = 1",
       {},
       {"run.toml:4:1: unknown key `weigth` in `data.sources[0]`; did you mean `weight`?"}},
      {"limits in a table of an array",
       ok,
       {"data.sources=[{path = \"a\", weight = -1}]"},
       {"`data.sources[0].weight` = -1.0: must be > 0"}},
      {"values for tables", ok + "data.sources = [1]", {}, {"`data.sources[0]` wants"}},
      {"bytes that are not UTF-8", ok + "name = \"\xff\"", {}, {"run.toml:2:"}},
      {"such bytes in a flag", ok, {"name=\xff"}, {"the value is not TOML"}},
      {"NUL in a string", ok + "name = \"a\\u0000b\"", {}, {"must not hold a NUL character"}},
      {"two lines in a flag", ok, {"train.seed=1\ntrain.x=2"}, {"line break"}},
      {"not TOML", "train.steps == 1", {}, {"run.toml:1:"}},
      {"letter beyond ASCII in a bare key",
       ok + "s\xc3\xa0 = 1",
       {},
       {"run.toml:2:2: a byte beyond ASCII outside a string"}},
      {"deep brackets",
       ok + "x = " + std::string(100, '['),
       {},
       {"nested more than 16 levels deep"}},
  };
  for (const BadInput& bad : cases) {
    std::vector<RecipeError> errors;
    const Result<Recipe> recipe = ResolveText(bad.text, bad.flags, &errors);
    ASSERT_FALSE(recipe.ok()) << bad.claim;
    EXPECT_EQ(ExitCodeFor(recipe.error()), kExitUsage) << bad.claim;
    EXPECT_EQ(errors.size(), 1u) << bad.claim << ": " << recipe.error().message();
    for (const std::string& part : bad.wants)
      EXPECT_THAT(recipe.error().message(), HasSubstr(part)) << bad.claim;
  }
}

TEST(Recipe, ReportsAllErrorsAtOnce) {
  std::vector<RecipeError> errors;
  const Result<Recipe> recipe = ResolveText(
      "[train]\nsteps = -1\nsed = 2\n[optim]\nlr_peak = \"x\"\n", {"model.tied=3"}, &errors);
  ASSERT_FALSE(recipe.ok());
  EXPECT_THAT(recipe.error().message(), StartsWith("the recipe has 4 errors:\n  "));
  std::vector<std::string> keys;
  for (const RecipeError& error : errors) keys.push_back(error.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("train.steps", "train.sed", "optim.lr_peak",
                                                    "model.tied"));
}

TEST(Recipe, CountsErrorsBeyondTheFirstHundred) {
  std::string text = "train.steps = 1\n";
  for (int i = 0; i < 150; ++i) text += fmt::format("x{} = 1\n", i);
  EXPECT_THAT(ResolveText(text).error().message(), HasSubstr("and 50 more"));
}

// A preset's locked field changes only with an acknowledgement, wherever that stands; equal values
// are no change.
TEST(Recipe, LockedFieldsChangeOnlyOnPurpose) {
  const std::string preset = "preset = \"small\"\n";
  EXPECT_EQ(Resolved(preset + "allow_override = [\"model.num_layers\"]\nmodel.num_layers = 8")
                .GetInt("model.num_layers"),
            8);
  EXPECT_EQ(Resolved(preset, {"model.num_layers=8", "allow_override=model.num_layers"})
                .GetInt("model.num_layers"),
            8);
  EXPECT_EQ(Resolved(preset, {"model.num_layers=8", "allow_override=[\"model.num_layers\"]"})
                .GetInt("model.num_layers"),
            8);
  EXPECT_EQ(Resolved(preset + "model.num_layers = 16").GetInt("model.num_layers"), 16);
  // Another field's acknowledgement does not count.
  EXPECT_FALSE(
      ResolveText(preset + "allow_override = [\"model.d_model\"]\nmodel.num_layers = 8").ok());
}

TEST(Recipe, PrintedRecipeKeepsItsLocksButNotTheirOverrides) {
  const Recipe recipe =
      Resolved("preset = \"small\"\nallow_override = [\"model.num_layers\"]\nmodel.num_layers = 8");
  const std::string printed = recipe.ToToml();
  EXPECT_EQ(Resolved(printed).Hash(), recipe.Hash());
  EXPECT_THAT(ResolveText(printed, {"model.num_layers=4"}).status().message(),
              HasSubstr("is locked at 8"));
}

TEST(Recipe, PrintsCompleteTomlInSchemaOrder) {
  EXPECT_EQ(Resolved("train.steps = 5\n[[data.sources]]\npath = \"a\\\\b\"").ToToml(), R"(name = ""

[train]
steps = 5
seed = 6198

[optim]
lr_peak = 0.0003
weight_decay = 0.1
betas = [0.9, 0.95]

[model]
num_layers = 32
d_model = 4096
dtype = "bf16"
tied = false

[model.rope]
windows = [4096, -1]

[eval]
tasks = []

[[data.sources]]
path = "a\\b"
weight = 1.0
filter.names = []
)");
}

TEST(Recipe, CommentsTellOriginsAndHelpAndStayOnTheirLine) {
  const Recipe recipe = Resolved("train.steps = 5", {"name='''a'''", "eval.tasks=[\"\\n\"]"});
  const std::string printed = recipe.ToToml({.origins = true, .help = true});
  EXPECT_THAT(printed, HasSubstr("# optimizer steps\nsteps = 5  # file run.toml:1:7\n"));
  EXPECT_THAT(printed, HasSubstr("seed = 6198  # default\n"));
  EXPECT_THAT(printed, HasSubstr("tasks = [\"\\n\"]  # flag --set eval.tasks=[\"\\n\"]\n"));
  EXPECT_EQ(Resolved(printed).Hash(), recipe.Hash());
  EXPECT_EQ(Resolved("train.steps = 5", {"name=a\nb\xc3\xa9"}).GetString("name"), "a\nb\xc3\xa9");
  EXPECT_THAT(Resolved("train.steps = 5", {"name=a\nb"}).ToToml({.origins = true}),
              HasSubstr("# flag --set name=a?b\n"));
}

// Floats of all magnitudes and strings of all characters survive printing and reading.
TEST(Recipe, PrintedRecipeParsesBackExactly) {
  std::mt19937_64 rng(3);
  Schema schema;
  schema.Floats("floats", std::nullopt, {.help = ""})
      .Ints("ints", std::nullopt, {.help = ""})
      .Strings("texts", std::nullopt, {.help = ""});
  std::vector<double> floats = {
      0.0, -0.0, 1, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 0.1, 1.0 / 3, 123456789012345680.0};
  while (floats.size() < 500) {
    const auto value = std::bit_cast<double>(rng());
    if (std::isfinite(value)) floats.push_back(value);
  }
  const std::vector<int64_t> ints = {0, -1, INT64_MAX, INT64_MIN};
  std::string all;
  for (char32_t c = 1; c < 128; ++c) all += static_cast<char>(c);
  const std::vector<std::string> texts = {all, "\xf0\x9f\x8c\xb3", "'''", "\"\"\"", "\\", " "};
  const std::string text = "floats = " + ToToml(RecipeValue(floats)) +
                           "\nints = " + ToToml(RecipeValue(ints)) +
                           "\ntexts = " + ToToml(RecipeValue(texts));
  const Result<Recipe> recipe = Recipe::Resolve(schema, {.file = {"f", text}});
  ASSERT_TRUE(recipe.ok()) << recipe.error().message();
  for (size_t i = 0; i < floats.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>(recipe->GetFloats("floats")[i]),
              std::bit_cast<uint64_t>(floats[i]))
        << floats[i];
  EXPECT_EQ(recipe->GetInts("ints"), ints);
  EXPECT_EQ(recipe->GetStrings("texts"), texts);
  const Result<Recipe> again = Recipe::Resolve(schema, {.file = {"f", recipe->ToToml()}});
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->Hash(), recipe->Hash());
  EXPECT_EQ(again->ToToml(), recipe->ToToml());
}

TEST(Recipe, HashSeesValuesOnly) {
  const Recipe recipe = Resolved("[train]\nsteps = 5\nseed = 1\n[optim]\nlr_peak = 1e-3");
  EXPECT_EQ(Resolved("optim.lr_peak = 0.001 # same\n", {"train.seed=0x1", "train.steps=5"}).Hash(),
            recipe.Hash());
  EXPECT_NE(Resolved("train.steps = 5\ntrain.seed = 2\noptim.lr_peak = 1e-3").Hash(),
            recipe.Hash());
  EXPECT_EQ(recipe.Hash().size(), 64u);
}

TEST(Recipe, HashOfTablesIgnoresTheRest) {
  const std::string_view data[] = {"data", "train.seed"};
  const Recipe recipe = Resolved("train.steps = 5\n[[data.sources]]\npath = \"a\"");
  EXPECT_EQ(Resolved("train.steps = 6\n[[data.sources]]\npath = \"a\"").Hash(data),
            recipe.Hash(data));
  EXPECT_NE(Resolved("train.steps = 5\n[[data.sources]]\npath = \"b\"").Hash(data),
            recipe.Hash(data));
  EXPECT_NE(Resolved("train.steps = 5\ntrain.seed = 5\n[[data.sources]]\npath = \"a\"").Hash(data),
            recipe.Hash(data));
}

TEST(Recipe, HashIsFixed) {  // checkpoints store it: sha256sum of "a = 2\nb = 1.0\n"
  Schema schema;
  schema.Float("b", 1.0, {.help = ""}).Int("a", 2, {.help = ""});
  EXPECT_EQ(Recipe::Resolve(schema, {})->Hash(),
            "b05072d775b3e147a8db028ef3d790aff58137fb494f74f6c94d5362baa8424d");
}

TEST(Recipe, DifferencesNameKeyValuesAndOrigin) {
  const Recipe before = Resolved("train.steps = 5\n[[data.sources]]\npath = \"a\"");
  const Recipe after = Resolved("train.steps = 5", {"optim.lr_peak=1e-3"});
  std::vector<std::string> lines;
  for (const RecipeDifference& d : Differences(before, after))
    lines.push_back(
        fmt::format("{}: {} -> {} ({})", d.key, d.before, d.after, d.origin.ToString()));
  EXPECT_THAT(lines, ElementsAre("data.sources: 1 -> 0 (default)",
                                 "data.sources[0].filter.names: [] -> (none) (default)",
                                 "data.sources[0].path: \"a\" -> (none) (file run.toml:3:1)",
                                 "data.sources[0].weight: 1.0 -> (none) (default)",
                                 "optim.lr_peak: 0.0003 -> 0.001 (flag --set optim.lr_peak=1e-3)"));
  EXPECT_TRUE(Differences(after, after).empty());
}

TEST(Recipe, JsonHoldsKeyValueAndOrigin) {
  const nlohmann::json rows = nlohmann::json::parse(Resolved("train.steps = 5").ToJson());
  EXPECT_EQ(rows.size(), TestSchema().fields().size());
  const auto steps = std::find_if(rows.begin(), rows.end(),
                                  [](const auto& row) { return row["key"] == "train.steps"; });
  ASSERT_NE(steps, rows.end());
  EXPECT_EQ(*steps, (nlohmann::json{
                        {"key", "train.steps"}, {"value", 5}, {"origin", "file run.toml:1:7"}}));
}

TEST(Recipe, BoundsWhatItReads) {
  EXPECT_THAT(ResolveText("#" + std::string(kMaxTomlBytes, 'x')).status().message(),
              HasSubstr("more than the 1048576"));
  std::string dotted = "a";
  for (int i = 0; i < 400000; ++i) dotted += ".a";
  EXPECT_THAT(ResolveText(dotted + " = 1").status().message(),
              HasSubstr("nested more than 16 levels deep"));
  // Dots and brackets in strings and comments do not count.
  const std::string noise(100, '[');
  EXPECT_TRUE(
      ResolveText("train.steps = 1 # " + noise + "\nname = \"" + noise + "\\\"" + noise + "\"")
          .ok());
  EXPECT_TRUE(ResolveText("train.steps = 1\nname = '''" + noise + "\n''" + noise + "'''''\n").ok());
}

TEST(Recipe, FileThatIsNotThereIsAUsageError) {
  const TempDir dir;
  const Status missing = ReadRecipeFile(dir.path() / "none.toml").status();
  EXPECT_EQ(ExitCodeFor(missing), kExitUsage);
  EXPECT_THAT(missing.message(), HasSubstr("none.toml"));
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a.toml", "train.steps = 1"), Status());
  EXPECT_EQ(ReadRecipeFile(dir.path() / "a.toml")->text, "train.steps = 1");
}

struct SourceConfig {
  std::string path;
  double weight = 1;
};
struct DataConfig {
  int64_t sequence_length = 8192;
  bool shuffle = true;
  std::vector<std::string> filters = {"ngram"};
  std::vector<SourceConfig> sources;
};

const StructSchema<DataConfig>& DataSchema() {
  static const auto schema =
      StructSchema<DataConfig>("data")
          .Add("sequence_length", &DataConfig::sequence_length, {.help = "tokens", .min = 2})
          .Add("shuffle", &DataConfig::shuffle, {.help = "global order"})
          .Add("filters", &DataConfig::filters, {.help = "by name", .allow_empty = true})
          .AddTables("sources", &DataConfig::sources,
                     StructSchema<SourceConfig>()
                         .Require("path", &SourceConfig::path, {.help = "token files"})
                         .Add("weight", &SourceConfig::weight, {.help = "share", .above = 0}),
                     {.help = "what to read"}, true);
  return schema;
}

TEST(StructSchema, DeclaresOnceAndFillsTheStruct) {
  Schema schema;
  DataSchema().AddTo(schema);
  const Result<Recipe> recipe = Recipe::Resolve(
      schema,
      {.file = {"f",
                "[data]\nfilters = []\nsequence_length = 64\n[[data.sources]]\npath = \"a\"\n"
                "[[data.sources]]\npath = \"b\"\nweight = 0.5"}});
  ASSERT_TRUE(recipe.ok()) << recipe.error().message();
  const DataConfig config = DataSchema().Read(*recipe);
  EXPECT_EQ(config.sequence_length, 64);
  EXPECT_TRUE(config.shuffle);
  EXPECT_TRUE(config.filters.empty());
  ASSERT_EQ(config.sources.size(), 2u);
  EXPECT_EQ(config.sources[0].path, "a");
  EXPECT_EQ(config.sources[0].weight, 1);
  EXPECT_EQ(config.sources[1].path, "b");
  EXPECT_EQ(config.sources[1].weight, 0.5);
}

TEST(StructSchema, RequiredTablesMustBeGiven) {
  Schema schema;
  DataSchema().AddTo(schema);
  EXPECT_THAT(Recipe::Resolve(schema, {.file = {"f", ""}}).status().message(),
              HasSubstr("`data.sources` is missing"));
  EXPECT_THAT(Recipe::Resolve(schema, {.file = {"f", "data.sources = []"}}).status().message(),
              HasSubstr("has 0 tables: the number must be >= 1"));
}

TEST(SchemaDeathTest, RefusesWrongDeclarations) {
  EXPECT_DEATH(Schema().Int("a", 1, {}).Int("a", 1, {}), "`a` is declared twice");
  EXPECT_DEATH(Schema().Int("a", 1, {}).Int("a.b", 1, {}), "`a.b` lies below the value `a`");
  EXPECT_DEATH(Schema().Int("a.b", 1, {}).Int("a", 1, {}), "`a` is declared twice");
  EXPECT_DEATH(Schema().Int("A", 1, {}), "not lower-case words");
  EXPECT_DEATH(Schema().Int("preset", 1, {}), "reserved");
  EXPECT_DEATH(Schema().Int("a", 0, {.min = 1}), "default 0 of `a` must be >= 1");
}

}  // namespace
}  // namespace ulmus
