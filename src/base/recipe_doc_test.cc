// The worked example of docs/formats/recipe.md, read from the page itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/recipe.h"

namespace ulmus {
namespace {

using ::testing::HasSubstr;

// Contents of the fenced blocks of the page, by their language.
std::vector<std::string> Blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> blocks;
  const std::string open = fmt::format("\n```{}\n", language), close = "\n```\n";
  for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
    const size_t begin = at + open.size();
    blocks.push_back(page.substr(begin, page.find(close, begin) + 1 - begin));
  }
  return blocks;
}

Schema ExampleSchema() {
  Schema source, schema;
  source.String("path", std::nullopt, {.help = "token file"})
      .Float("weight", 1.0, {.help = "share", .above = 0});
  schema.Int("train.steps", std::nullopt, {.help = "optimizer steps", .min = 1})
      .Int("model.num_layers", 32, {.help = "blocks", .min = 1})
      .String("model.dtype", "bf16", {.help = "compute dtype", .choices = {"bf16", "f32"}})
      .Float("optim.lr_peak", 3e-4, {.help = "learning rate", .above = 0})
      .Floats("optim.betas", std::vector{0.9, 0.95}, {.help = "Adam"})
      .Tables("data.sources", source, {.help = "what to read"});
  return schema;
}

TEST(RecipeFormat, WorkedExampleHolds) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  const Result<std::string> page =
      ReadFile(Path(root != nullptr ? root : ".") / "docs/formats/recipe.md");
  ASSERT_TRUE(page.ok()) << page.error().message() << " (run from the top of the repository)";
  const std::vector<std::string> blocks = Blocks(*page, "toml");
  ASSERT_EQ(blocks.size(), 3u);
  const RecipeSource presets[] = {{"small", blocks[0]}};
  RecipeInput input{
      .file = {"run.toml", blocks[1]}, .flags = {"train.steps=200"}, .presets = presets};
  const Result<Recipe> recipe = Recipe::Resolve(ExampleSchema(), input);
  ASSERT_TRUE(recipe.ok()) << recipe.error().message();
  EXPECT_EQ(recipe->ToToml({.origins = true}), blocks[2]);
  EXPECT_THAT(*page, HasSubstr(fmt::format("`{}`", recipe->Hash())));

  input.flags.push_back("model.dtype=f32");
  EXPECT_THAT(*page,
              HasSubstr(fmt::format("```\n{}\n```",
                                    Recipe::Resolve(ExampleSchema(), input).status().message())));
}

TEST(RecipeFormat, ErrorsReadAsDescribed) {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  const Result<std::string> page =
      ReadFile(Path(root != nullptr ? root : ".") / "docs/formats/recipe.md");
  ASSERT_TRUE(page.ok()) << page.error().message() << " (run from the top of the repository)";
  Schema schema;
  schema.Int("train.steps", std::nullopt, {.help = "optimizer steps", .min = 1})
      .Float("optim.lr_peak", 3e-4, {.help = "learning rate", .above = 0})
      .Float("optim.weight_decay", 0.1, {.help = "decoupled"});
  const std::string text =
      "# a recipe\n[train]\nsteps = 100\n[optim]\nlr_paek = 1e-4\nweight_decay = \"0.1\"\n";
  const Result<Recipe> recipe =
      Recipe::Resolve(schema, {.file = {"run.toml", text}, .flags = {"train.steps=-5"}});
  EXPECT_THAT(*page, HasSubstr(fmt::format("```\n{}\n```", recipe.status().message())));
}

}  // namespace
}  // namespace ulmus
