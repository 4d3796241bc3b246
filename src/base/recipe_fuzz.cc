// Any bytes as a recipe file, a preset and flags: refused or resolved, and what is resolved prints
// and parses back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe.h"

namespace {

ulmus::Schema FuzzSchema() {
  ulmus::Schema item;
  item.String("path", std::nullopt, {.help = "files"})
      .Float("weight", 1.0, {.help = "share", .above = 0})
      .Ints("sizes.list", std::vector<int64_t>{}, {.help = "sizes"});
  ulmus::Schema schema;
  schema.String("name", "", {.help = "name"})
      .Int("a.int", 1, {.help = "int", .min = 1})
      .Float("a.float", 0.5, {.help = "float"})
      .Bool("a.b.bool", false, {.help = "bool"})
      .String("a.b.choice", "x", {.help = "choice", .choices = {"x", "y"}})
      .Ints("l.ints", std::vector<int64_t>{1}, {.help = "ints", .allow_empty = true})
      .Floats("l.floats", std::vector<double>{}, {.help = "floats"})
      .Strings("l.strings", std::vector<std::string>{}, {.help = "strings"})
      .Tables("l.tables", item, {.help = "tables"});
  return schema;
}

}  // namespace

// The input is split at bytes 0xfe, which no UTF-8 text holds: file, preset "p", then flags.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ulmus::Schema schema = FuzzSchema();
  std::vector<std::string> parts(1);
  for (char c : std::string_view(reinterpret_cast<const char*>(data), size)) {
    if (c == '\xfe')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  const std::vector<ulmus::RecipeSource> presets = {{"p", parts.size() > 1 ? parts[1] : ""}};
  ulmus::RecipeInput input{.file = {"fuzz.toml", parts[0]}, .flags = {}, .presets = presets};
  if (parts.size() > 2) input.flags.assign(parts.begin() + 2, parts.end());
  std::vector<ulmus::RecipeError> errors;
  const ulmus::Result<ulmus::Recipe> recipe = ulmus::Recipe::Resolve(schema, input, &errors);
  CHECK(recipe.ok() == errors.empty());
  if (!recipe.ok()) {
    CHECK(ulmus::ExitCodeFor(recipe.error()) == ulmus::kExitUsage);
    return 0;
  }
  for (const ulmus::RecipeComments comments :
       {ulmus::RecipeComments{}, ulmus::RecipeComments{.origins = true, .help = true}}) {
    const std::string printed = recipe->ToToml(comments);
    const ulmus::Result<ulmus::Recipe> again =
        ulmus::Recipe::Resolve(schema, {.file = {"printed.toml", printed}});
    CHECK(again.ok(), "{}\n{}", again.status().message(), printed);
    CHECK(again->Hash() == recipe->Hash(), "{}", printed);
    CHECK(ulmus::Differences(*recipe, *again).empty());
  }
  CHECK(!recipe->ToJson().empty());
  return 0;
}
