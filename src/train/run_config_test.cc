#include "train/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "nn/olmo3/config.h"
#include "optim/schedule.h"

namespace ulmus::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<Recipe> ResolvePreset(const std::string& name, std::vector<std::string> flags = {}) {
  return ResolveRun(name, std::move(flags));
}

// Later stages must be told where the stage before them is.
std::vector<std::string> StartOf(const std::string& name) {
  if (name.ends_with("stage2") || name.ends_with("stage3")) return {"train.start_from=before"};
  return {};
}

RunConfig ConfigOf(const std::string& name, std::vector<std::string> flags = {}) {
  const Result<Recipe> recipe = ResolvePreset(name, std::move(flags));
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  if (!recipe.ok()) return {};
  Result<RunConfig> config = ConfigFromRecipe(*recipe);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *std::move(config) : RunConfig();
}

// The message with which `preset` and `flags` are refused; "" if they are not.
std::string Refusal(const std::string& preset, std::vector<std::string> flags) {
  const Result<Recipe> recipe = ResolvePreset(preset, std::move(flags));
  if (!recipe.ok()) return recipe.status().message();
  return ConfigFromRecipe(*recipe).status().message();
}

TEST(Presets, AllHoldAndReadBackFromTheirResolvedForm) {
  ASSERT_FALSE(Presets().empty());
  for (const RecipeSource& preset : Presets()) {
    SCOPED_TRACE(preset.name);
    const Result<Recipe> recipe = ResolvePreset(preset.name, StartOf(preset.name));
    ASSERT_TRUE(recipe.ok()) << recipe.status().message();
    const Result<RunConfig> config = ConfigFromRecipe(*recipe);
    EXPECT_TRUE(config.ok()) << config.status().message();
    const auto again =
        Recipe::Resolve(RunSchema(), {.file = {"recipe.toml", recipe->ToToml({.origins = true})}});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->Hash(), recipe->Hash());
    EXPECT_THAT(Differences(*again, *recipe), IsEmpty());
  }
}

// Sizes of the published models and of OLMo-core's configurations, by the table of nn/olmo3.
TEST(Presets, HaveTheSizesOfTheirModels) {
  for (const nn::olmo3::ConfigPreset& size : nn::olmo3::ConfigPresets()) {
    SCOPED_TRACE(size.name);
    nn::olmo3::Config model = ConfigOf(fmt::format("olmo3_{}", size.name)).model;
    EXPECT_TRUE(model.last_layer_full);  // OLMo-core; no layer changes its kind
    model.last_layer_full = false;
    EXPECT_EQ(nn::olmo3::ConfigToRecipe(model), nn::olmo3::ConfigToRecipe(size.make()));
  }
}

struct Point {
  int64_t step;
  double lr;
};

// spec: the stated rates of every stage, computed with OLMo-core 3.0.0 and MaxText's formula.
TEST(Presets, HaveThePublishedRates) {
  const std::pair<const char*, std::vector<Point>> stages[] = {
      {"olmo3_7b_stage1",
       {{1, 1.5e-07},
        {1000, 1.5e-4},
        {2000, 3e-4},
        {100000, 2.955076828431e-4},
        {597046, 1.650001781857e-4},
        {597047, 1.649998021640e-4},
        {800000, 1.254377251553e-4},
        {1000000, 8.983407692446e-5},
        {1413814, 3.932527167181e-5}}},
      {"olmo3_7b_stage1_maxtext",
       {{1, 0},
        {2, 1.5007503751875937e-07},
        {1001, 0.00015007503751875937},
        {2000, 0.0003},
        {100001, 0.0002968038584164301},
        {1000001, 8.334741307099402e-05},
        {1414078, 2.9999999999999997e-05}}},
      {"olmo3_7b_stage2",
       {{1, 2.071191848343e-4}, {23842, 1.035617642518e-4}, {47683, 4.34366933361e-9}, {47684, 0}}},
      {"olmo3_7b_stage3",
       {{1, 1.035617642518e-6},
        {200, 2.071235285036e-4},
        {6000, 1.046308687202e-4},
        {11920, 1.767114823852e-8},
        {11921, 0}}},
      // t_max 707,000, as the preset says.
      {"olmo3_32b_stage1",
       {{1, 3e-07}, {2000, 6e-4}, {100000, 5.746607124024e-4}, {656000, 6.694265504809e-05}}},
      // lr * (1 - step / 23842), and lr * min(step / 200, (11921 - step) / 11721).
      {"olmo3_32b_stage2",
       {{1, 0.0002071235285 * 23841 / 23842}, {11921, 0.00010356176425}, {23842, 0}}},
      {"olmo3_32b_stage3",
       {{1, 1.0356176425e-6}, {200, 0.0002071235285}, {6000, 0.0002071235285 * 5921 / 11721}}}};
  for (const auto& [name, points] : stages) {
    const RunConfig config = ConfigOf(name, StartOf(name));
    for (const auto& [step, lr] : points) {
      EXPECT_NEAR(
          optim::LearningRate(config.learning_rate(), step, step * config.tokens_per_step()), lr,
          1e-12 * 3e-4 + 1e-12 * lr)
          << name << " step " << step;
    }
  }
}

TEST(Presets, HaveThePublishedBatchesAndEnds) {
  struct Row {
    const char* name;
    int64_t tokens_per_step, last_step;
  };
  for (const auto& [name, tokens_per_step, last_step] :
       {Row{"olmo3_7b", 4194304, 1192093}, Row{"olmo3_7b_stage1", 4194304, 1413814},
        Row{"olmo3_7b_stage1_maxtext", 4194304, 1414078}, Row{"olmo3_7b_stage2", 2097152, 47684},
        Row{"olmo3_7b_stage3", 4194304, 11921}, Row{"olmo3_32b_stage1", 8388608, 656000},
        Row{"olmo3_32b_stage2", 4194304, 23842}, Row{"olmo3_32b_stage3", 8388608, 11921},
        Row{"olmo3_190m", 524288, 7262}}) {
    const RunConfig config = ConfigOf(name, StartOf(name));
    EXPECT_EQ(config.tokens_per_step(), tokens_per_step) << name;
    const Result<int64_t> last = LastStep(config, std::nullopt);
    ASSERT_TRUE(last.ok()) << name << ": " << last.status().message();
    EXPECT_EQ(*last, last_step) << name;
  }
}

TEST(Presets, CurvesEndWhereTheRunDoes) {
  for (const RecipeSource& preset : Presets()) {
    const RunConfig config = ConfigOf(preset.name, StartOf(preset.name));
    // These stop before their curves end.
    if (preset.name == "olmo3_7b_stage1" || preset.name == "olmo3_32b" ||
        preset.name == "olmo3_32b_stage1")
      continue;
    EXPECT_EQ(*LastStep(config, std::nullopt), config.schedule.phases.back().t_max) << preset.name;
  }
}

TEST(Presets, PublishedStagesAreLocked) {
  for (const RecipeSource& preset : Presets()) {
    if (preset.name.find("stage") == std::string::npos) continue;
    for (const char* flag :
         {"model.num_layers=3", "model.vocab_multiple=3", "optim.moments=bfloat16",
          "optim.weight_decay=0.2", "optim.skip=off", "data.seed=3", "data.global_batch=8",
          "data.sequence_length=128", "data.order=grain", "data.ngram_max_count=7",
          "train.dtype=float32", "train.init=maxtext"}) {
      const std::string key = std::string(flag).substr(0, std::string(flag).find('='));
      EXPECT_THAT(Refusal(preset.name, {flag}), HasSubstr(fmt::format("`{}` is locked", key)))
          << preset.name << " " << flag;
    }
    // What belongs to the machine and to the files is not.
    EXPECT_THAT(
        Refusal(preset.name, {"data.paths=[\"a.npy\"]", "train.microbatches=4", "mesh.fsdp=8",
                              "train.remat=full", "checkpoint.every=7", "train.start_from=before"}),
        IsEmpty())
        << preset.name;
  }
}

TEST(Presets, LaterStagesWantTheStageBefore) {
  EXPECT_THAT(Refusal("olmo3_7b_stage2", {}),
              AllOf(HasSubstr("train.start_from"), HasSubstr("weights_and_moments")));
}

// One row per key: "| `train.steps` | an integer | `0` | help |".
std::string KeyTable(const Schema& schema, const std::string& prefix = "") {
  std::string text;
  for (const Field& field : schema.fields()) {
    const std::string key = prefix + field.key;
    const std::string value = field.type == FieldType::kTables ? "none"
                              : field.default_value
                                  ? fmt::format("`{}`", ToToml(*field.default_value))
                                  : "must be given";
    const std::string choices = field.options.choices.empty()
                                    ? ""
                                    : fmt::format(": {}", fmt::join(field.options.choices, ", "));
    text += fmt::format("| `{}` | {}{} | {} | {} |\n", key, Name(field.type), choices, value,
                        field.options.help);
    if (field.item) text += KeyTable(*field.item, key + "[].");
  }
  return text;
}

TEST(Schema, IsThePageOfKeys) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  const Result<std::string> page =
      ReadFile(Path(root != nullptr ? root : ".") / "docs/formats/run_keys.md");
  ASSERT_TRUE(page.ok()) << page.status().message();
  const std::string table = KeyTable(RunSchema());
  EXPECT_TRUE(page->find(table) != std::string::npos)
      << "docs/formats/run_keys.md must hold this table:\n"
      << table;
}

TEST(Schema, EveryFieldSaysWhatItIs) {
  const auto check = [](const Schema& schema, const auto& self) -> void {
    for (const Field& field : schema.fields()) {
      EXPECT_NE(field.options.help, "") << field.key;
      if (field.item) self(*field.item, self);
    }
  };
  check(RunSchema(), check);
}

TEST(RunConfig, GivesModulesTheirOptions) {
  const RunConfig config = ConfigOf("reference_run", {"train.microbatches=2"});
  const StepOptions step = config.step_options();
  EXPECT_EQ(step.global_batch, 16);
  EXPECT_EQ(step.num_microbatches, 2);
  EXPECT_EQ(step.sequence_length, 256);
  EXPECT_EQ(step.forward.dtype, DType::kF32);
  EXPECT_EQ(step.moments, DType::kF32);
  EXPECT_EQ(step.clip, optim::ClipRule::kOlmoCore);
  EXPECT_EQ(step.skip_metrics, SkipMetrics::kCrossEntropyAndRawNorm);
  ASSERT_EQ(step.groups.size(), 1u);
  EXPECT_EQ(step.groups[0].weight_decay, 0);
  EXPECT_EQ(config.skip_options().interval, 128);
  EXPECT_EQ(config.tokens_per_step(), 4096);
  // train.csv of the run: 4e-05, 8e-05, then the peak at step 50.
  EXPECT_DOUBLE_EQ(optim::LearningRate(config.learning_rate(), 1, 4096), 4e-5);
  EXPECT_DOUBLE_EQ(optim::LearningRate(config.learning_rate(), 50, 50 * 4096), 2e-3);
}

TEST(RunConfig, AlarmsHaveTheirThresholdsFromTheRecipe) {
  const metrics::HeldoutAlarmOptions defaults, usual = ConfigOf("tiny", {}).alarm_options();
  EXPECT_EQ(usual.window_steps, defaults.window_steps);
  EXPECT_EQ(usual.min_train_fall, defaults.min_train_fall);
  EXPECT_EQ(usual.min_follow, defaults.min_follow);
  EXPECT_EQ(usual.max_gap, defaults.max_gap);
  const auto set = ConfigOf("tiny", {"metrics.alarm_window=5", "metrics.alarm_min_fall=0.5",
                                     "metrics.alarm_min_follow=0.2", "metrics.alarm_gap=2.0"})
                       .alarm_options();
  EXPECT_EQ(set.window_steps, 5);
  EXPECT_EQ(set.min_train_fall, 0.5);
  EXPECT_EQ(set.min_follow, 0.2);
  EXPECT_EQ(set.max_gap, 2);
  const auto off =
      ConfigOf("tiny", {"metrics.alarm_min_fall=0.0", "metrics.alarm_gap=0.0"}).alarm_options();
  EXPECT_TRUE(std::isinf(off.min_train_fall) && std::isinf(off.max_gap));
}

TEST(RunConfig, GroupsReplaceTheDefault) {
  const RunConfig config = ConfigOf(
      "tiny", {R"(optim.groups=[{patterns = ["*norm*"], weight_decay = 0, lr_factor = 0.5}])"});
  const std::vector<optim::ParamGroup> groups = config.step_options().groups;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].patterns, std::vector<std::string>{"*norm*"});
  EXPECT_EQ(groups[0].lr_factor, 0.5);
  EXPECT_EQ(ConfigOf("tiny").step_options().groups[0].patterns,
            optim::Olmo3ParamGroups()[0].patterns);
}

// B32: what a group of parameters can get wrong (pytorch/torchtitan#2599).
TEST(RunConfig, RefusesGroupsThatDoNotFit) {
  const auto refusal = [](const std::string& groups) {
    return Refusal("tiny", {"optim.groups=" + groups});
  };
  EXPECT_THAT(
      refusal(R"([{patterns = ["model.embed_token.weight"], weight_decay = 0}])"),
      AllOf(HasSubstr("matches none"), HasSubstr("did you mean 'model.embed_tokens.weight'"),
            HasSubstr("--set optim.groups")));
  EXPECT_THAT(refusal(R"([{patterns = ["*norm*"], weight_decay = 0},
                          {patterns = ["model.norm.weight"], weight_decay = 1}])"),
              HasSubstr("line break"));
  EXPECT_THAT(refusal(R"([{patterns = ["*norm*"], weight_decay = 0}, )"
                      R"({patterns = ["model.norm.weight"], weight_decay = 1}])"),
              HasSubstr("belongs to groups 0 and 1"));
  EXPECT_THAT(refusal(R"([{patterns = ["model.layers.0.*"], weight_decay = 0}])"), IsEmpty());
  EXPECT_THAT(Refusal("reference_run",
                      {"allow_override=optim.groups",
                       R"(optim.groups=[{patterns = ["model.layers.0.*"], weight_decay = 0}])"}),
              HasSubstr("share one stack of layers"));
  EXPECT_THAT(refusal(R"([{patterns = ["*"], weight_decay = -0.1}])"), HasSubstr("must be >= 0"));
  EXPECT_THAT(refusal(R"([{patterns = [], weight_decay = 0}])"), HasSubstr("patterns"));
  EXPECT_THAT(refusal(R"([{patterns = ["*"]}])"), HasSubstr("weight_decay` is missing"));
}

// B30, B31: pytorch/torchtitan#1010 and EleutherAI/gpt-neox#1379: no length of a schedule divides
// by zero.
TEST(RunConfig, SchedulesAreFiniteOrRefused) {
  const auto phases = [](const char* text) {
    return std::vector<std::string>{fmt::format("schedule.phases=[{{{}}}]", text)};
  };
  for (const char* text : {R"(kind = "wsd", lr = 1e-3, warmup = 80, decay = 20, t_max = 100)",
                           R"(kind = "wsd", lr = 1e-3, warmup = 100, decay = 0, t_max = 100)",
                           R"(kind = "cosine", lr = 1e-3, warmup = 0, t_max = 1)",
                           R"(kind = "cosine", lr = 1e-3, warmup = 1, t_max = 1)",
                           R"(kind = "maxtext_cosine", lr = 1e-3, warmup = 0, t_max = 1)",
                           R"(kind = "linear", lr = 1e-3, warmup = 10, t_max = 10)",
                           R"(kind = "half_cosine", lr = 1e-3, warmup = 10, t_max = 10)"}) {
    SCOPED_TRACE(text);
    const RunConfig config = ConfigOf("tiny", phases(text));
    ASSERT_FALSE(config.schedule.phases.empty());
    for (int64_t step = 1; step <= 102; ++step) {
      const double lr = optim::LearningRate(config.learning_rate(), step, step * 1024);
      EXPECT_TRUE(std::isfinite(lr) && lr >= 0) << "step " << step << ": " << lr;
    }
  }
  struct Case {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : std::initializer_list<Case>{
           {R"(kind = "cosine", lr = 1e-3, warmup = 200, t_max = 100)", "warmup 200 > t_max 100"},
           {R"(kind = "cosine", lr = 1e-3)", "t_max = 0"},
           {R"(kind = "cosine", lr = 0, t_max = 9)", "lr = 0"},
           {R"(kind = "wsd", lr = 1e-3, warmup = 90, decay = 20, t_max = 100)",
            "warmup 90 + decay 20 = 110 > t_max 100"},
           {R"(kind = "power_law", lr = 1e-3)", "warmup = 0"},
           {R"(kind = "cosin", lr = 1e-3, t_max = 9)", "must be one of"},
           {R"(kind = "cosine", lr = -1e-3, t_max = 9)", "must be >= 0"},
           {R"(kind = "cosine", lr = 1e-3, t_max = -9)", "must be >= 0"}}) {
    EXPECT_THAT(Refusal("tiny", phases(text)), HasSubstr(message)) << text;
  }
}

// B49: AI-Hypercomputer/maxtext#3649: nothing that a recipe says is dropped in silence.
TEST(RunConfig, RefusesWhatIsNoValueOfItsKey) {
  struct Case {
    const char* flag;
    const char* message;
  };
  for (const auto& [flag, message] :
       std::initializer_list<Case>{{"train.stpes=5", "did you mean `train.steps`"},
                                   {"optim.lr_peak=1e-4", "not a key"},
                                   {"train.steps=-5", "must be >= 0"},
                                   {"optim.eps=\"1e-8 \"", "wants a float"},
                                   {"train.steps=null", "not TOML"},
                                   {"train.steps=1e3", "wants an integer"},
                                   {"train.steps=", "has no value"},
                                   {"train.dtype=fp8", "must be one of"},
                                   {"train.remat=some", "must be one of"},
                                   {"optim.beta1=1.0", "must be < 1"},
                                   {"optim.max_grad_norm=0", "must be > 0"},
                                   {"mesh.data=-1", "must be >= 0"},
                                   {"mesh.tensor=100000", "must be <= 32768"},
                                   {"metrics.log_every=0", "must be >= 1"},
                                   {"train.seed=9223372036854775808", "not TOML"}}) {
    EXPECT_THAT(Refusal("tiny", {flag}), AllOf(HasSubstr(message), HasSubstr("--set"))) << flag;
  }
  EXPECT_THAT(Refusal("reference_run", {"model.num_layers=4"}),
              AllOf(HasSubstr("locked at 8"), HasSubstr("preset reference_run:"),
                    HasSubstr("allow_override")));
  EXPECT_THAT(Refusal("reference_run", {"optim.moments=bfloat16"}), HasSubstr("locked"));
  EXPECT_THAT(Refusal("reference_run", {"model.num_layers=4", "allow_override=model.num_layers"}),
              IsEmpty());
}

TEST(RunConfig, ListsAllThatTablesTellTogether) {
  std::vector<RecipeError> errors;
  const Result<Recipe> recipe = ResolvePreset(
      "tiny", {"train.tokens=5000", "data.vocab_size=5000", "mesh.data=0", "mesh.fsdp=0",
               "train.start_with=weights_and_moments",
               R"(eval.sets=[{name = "a", paths = ["x"]}, {name = "a", paths = ["y"]}])"});
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  EXPECT_FALSE(ConfigFromRecipe(*recipe, &errors).ok());
  std::vector<std::string> keys;
  for (const RecipeError& error : errors) keys.push_back(error.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("train.steps", "data.vocab_size", "mesh",
                                                    "train.start_with", "eval.sets[1].name"));
}

// B50: AI-Hypercomputer/maxtext#4123: what does not divide is refused with the equation.
TEST(MeshOf, RefusesWhatDoesNotDivideWithTheEquation) {
  EXPECT_EQ(MeshOf({.data = 0, .tensor = 4}, 6).status().message(),
            "mesh: 6 devices % (tensor=4) = 2; change an axis so that it is 0");
  EXPECT_THAT(MeshOf({.data = 2, .tensor = 2}, 8).status().message(),
              HasSubstr("8 devices % (data=2 * tensor=2) = 0, but only 4 of them"));
  EXPECT_THAT(MeshOf({.data = 0, .fsdp = 0}).status().message(),
              HasSubstr("mesh.data = 0 and mesh.fsdp = 0"));
  EXPECT_THAT(MeshOf({.data = -2}).status().message(), HasSubstr("mesh.data = -2"));
  EXPECT_THAT(Refusal("tiny", {"mesh.data=4", "data.global_batch=10"}),
              HasSubstr("10 % (data=4) = 2"));
  EXPECT_THAT(Refusal("tiny", {"mesh.context=3"}), HasSubstr("128 % (context=3) = 2"));
  EXPECT_THAT(Refusal("tiny", {"mesh.tensor=8"}), HasSubstr("% (tensor=8) = "));
  EXPECT_THAT(Refusal("tiny", {"train.microbatches=3"}),
              HasSubstr("8 instances % 3 microbatches = 2"));
  EXPECT_THAT(Refusal("tiny", {"model.num_kv_heads=3"}), HasSubstr("4 % 3 = 1"));
  EXPECT_THAT(Refusal("tiny", {"mesh.data=2", "optim.grad_norm_sum=torch_cpu"}),
              HasSubstr("take \"any_order\""));
  EXPECT_THAT(Refusal("tiny", {"data.global_batch=9000000000000000000"}), HasSubstr("2^53"));
}

TEST(MeshOf, FillsInWhatIsLeft) {
  EXPECT_EQ(MeshOf({.data = 0, .tensor = 4}, 8)->ToString(), "data=2 tensor=4");
  EXPECT_EQ(MeshOf({.data = 0, .tensor = 4})->ToString(), "tensor=4");
  EXPECT_EQ(MeshOf({.data = 0}, 1)->num_devices(), 1);
  EXPECT_TRUE(MeshOf({})->axes().empty());
}

TEST(LastStep, IsStepsOrWholeBatchesOfTokensOrTheEndOfTheData) {
  RunConfig config;
  config.data.global_batch = 4;
  config.data.sequence_length = 8;
  EXPECT_EQ(*LastStep(config, 7), 7);
  EXPECT_THAT(LastStep(config, std::nullopt).status().message(), HasSubstr("never end"));
  config.train.steps = 5;
  EXPECT_EQ(*LastStep(config, 7), 5);
  EXPECT_EQ(*LastStep(config, std::nullopt), 5);
  EXPECT_THAT(LastStep(config, 4).status().message(),
              AllOf(HasSubstr("5 steps"), HasSubstr("after 4 of 4 instances")));
  config.train.steps = 0;
  config.train.tokens = 64;
  EXPECT_EQ(*LastStep(config, 7), 2);
  config.train.tokens = 65;
  EXPECT_EQ(*LastStep(config, 7), 3);
  config.train.tokens = INT64_MAX;
  EXPECT_EQ(*LastStep(config, std::nullopt), INT64_MAX / 32 + 1);
}

TEST(ResolveRun, NamesThePresetThatMayHaveBeenMeant) {
  const Status status = ResolveRun("refrence_run", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("tiny"), HasSubstr("did you mean `reference_run`")));
}

}  // namespace
}  // namespace ulmus::train
