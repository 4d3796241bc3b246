#include "nn/olmo3/remat.h"

namespace ulmus::nn::olmo3 {

const std::vector<RematChoice>& RematChoices() {
  static const std::vector<RematChoice> choices = {
      {"none", "keep everything: fastest where it fits", false, false, {}},
      {"full", "keep the layers' inputs only", true, false, {}},
      {"full_group", "keep the inputs of groups only; layers run three times", true, true, {}},
      {"save_attention",
       "also what attention needs not to run twice",
       true,
       false,
       {kAttention, kAttentionLse}},
      {"save_qkv", "also queries, keys and values", true, false, {kQuery, kKey, kValue}},
      {"save_qkv_attention",
       "queries, keys, values and attention",
       true,
       false,
       {kQuery, kKey, kValue, kAttention, kAttentionLse}},
      {"save_out",
       "what both branches add to the residual stream, and attention",
       true,
       false,
       {kAttention, kAttentionLse, kOutProj, kMlpOut}},
      {"save_dots",
       "every product of matrices: only elementwise work is repeated",
       true,
       false,
       {kQuery, kKey, kValue, kAttention, kAttentionLse, kOutProj, kMlpGate, kMlpUp, kMlpOut}},
  };
  return choices;
}

Result<const RematChoice*> RematByName(std::string_view name) {
  std::string names;
  for (const RematChoice& choice : RematChoices()) {
    if (choice.name == name) return &choice;
    names += fmt::format("{}{}", names.empty() ? "" : " ", choice.name);
  }
  return InvalidArgumentError("no remat policy is called `{}`; there are: {}", name, names);
}

std::vector<std::string> RematNames() {
  std::vector<std::string> names;
  for (const RematChoice& choice : RematChoices()) names.emplace_back(choice.name);
  return names;
}

}  // namespace ulmus::nn::olmo3
