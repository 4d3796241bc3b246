#include "residual_mlp/config.h"

#include <gtest/gtest.h>

#include "residual_mlp/model.h"

namespace ulmus::residual_mlp {
namespace {

struct BadRecipe {
  const char* flag;
  const char* message;
};

// Case B50: sizes that do not divide over the mesh are refused before anything is compiled, with
// the equation.
TEST(Config, IndivisibleSizesPrintTheEquation) {
  const BadRecipe kBad[] = {
      {"train.batch_size=10",
       "train.batch_size = 10 does not divide over mesh.fsdp = 4: 10 % 4 = 2"},
      {"model.context_bytes=3",
       "model.context_bytes * model.embedding_width = 6 does not divide over mesh.fsdp = 4: 6 % 4 "
       "= 2"},
      {"model.hidden_width=513",
       "model.hidden_width = 513 does not divide over mesh.tensor = 2: 513 % 2 = 1"},
      {"mesh.tensor=3",
       "model.hidden_width = 512 does not divide over mesh.tensor = 3: 512 % 3 = 2"},
  };
  for (const auto& [flag, message] : kBad) {
    const Result<Recipe> recipe =
        Recipe::Resolve(ConfigSchema(), {.file = {}, .flags = {flag, "model.embedding_width=2"}});
    ASSERT_TRUE(recipe.ok()) << recipe.error().message();
    const Status status = ValidateConfig(ReadConfig(*recipe));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(message), std::string::npos)
        << flag << ": " << status.message();
  }
}

TEST(Config, MistakesInARecipeAreRefusedWithTheNearestKey) {
  const BadRecipe kBad[] = {{"model.num_layer=3", "model.num_layers"},
                            {"train.steps=0", "train.steps"},
                            {"optim.lr=fast", "optim.lr"},
                            {"mesh.fsdp=-1", "mesh.fsdp"}};
  for (const auto& [flag, message] : kBad) {
    const Result<Recipe> recipe = Recipe::Resolve(ConfigSchema(), {.file = {}, .flags = {flag}});
    ASSERT_FALSE(recipe.ok()) << flag;
    EXPECT_NE(recipe.error().message().find(message), std::string::npos)
        << recipe.error().message();
  }
}

TEST(Config, StepTakesOverEveryBufferOfTheState) {
  const Program program = TrainStep(Config{});
  EXPECT_EQ(program.mesh.num_devices(), 8);
  size_t donated = 0;
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    if (program.arguments[i].donated_to < 0) continue;
    EXPECT_EQ(program.results[static_cast<size_t>(program.arguments[i].donated_to)].name,
              program.arguments[i].name);
    ++donated;
  }
  EXPECT_EQ(donated, 3 * Parameters(Config{}).size());
}

}  // namespace
}  // namespace ulmus::residual_mlp
