// Hugging Face's config.json. Nothing a field says is dropped: each is read, known to leave the
// arithmetic alone, or refused.
#include <algorithm>
#include <set>

#include "base/edit_distance.h"
#include "base/json.h"
#include "nn/olmo3/config.h"

namespace ulmus::nn::olmo3 {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";
constexpr double kClassTheta = 500000;  // what transformers falls back to

// Fields that say nothing about logits or gradients.
const std::set<std::string, std::less<>>& IgnoredFields() {
  static const std::set<std::string, std::less<>> fields = {"_name_or_path",
                                                            "architectures",
                                                            "transformers_version",
                                                            "use_cache",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "return_dict",
                                                            "chunk_size_feed_forward",
                                                            "id2label",
                                                            "label2id",
                                                            "problem_type",
                                                            "task_specific_params",
                                                            "_attn_implementation_autoset"};
  return fields;
}

// Fields that may stand there with this value only.
struct FixedField {
  const char* name;
  Json value;
  bool required = false;
};
const std::vector<FixedField>& FixedFields() {
  static const std::vector<FixedField> fields = {{"model_type", "olmo3", true},
                                                 {"hidden_act", "silu", true},
                                                 {"attention_bias", false, true},
                                                 {"attention_dropout", 0.0, true},
                                                 {"is_encoder_decoder", false},
                                                 {"is_decoder", false},
                                                 {"add_cross_attention", false},
                                                 {"cross_attention_hidden_size", nullptr},
                                                 {"partial_rotary_factor", 1.0},
                                                 {"tie_encoder_decoder", false},
                                                 {"pruned_heads", Json::object()},
                                                 {"clip_qkv", nullptr},
                                                 {"torchscript", false}};
  return fields;
}

const std::set<std::string, std::less<>>& ReadFields() {
  static const std::set<std::string, std::less<>> fields = {"vocab_size",
                                                            "hidden_size",
                                                            "intermediate_size",
                                                            "num_hidden_layers",
                                                            "num_attention_heads",
                                                            "num_key_value_heads",
                                                            "head_dim",
                                                            "max_position_embeddings",
                                                            "layer_types",
                                                            "sliding_window",
                                                            "rms_norm_eps",
                                                            "tie_word_embeddings",
                                                            "initializer_range",
                                                            "pad_token_id",
                                                            "bos_token_id",
                                                            "eos_token_id",
                                                            "dtype",
                                                            "torch_dtype",
                                                            "rope_theta",
                                                            "rope_scaling",
                                                            "rope_parameters"};
  return fields;
}

// A value for a message, short.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

Result<Json> ParseObject(std::string_view text) {
  Json json = TRY(ParseJson(text, {.max_bytes = kMaxHfConfigBytes}));
  if (!json.is_object()) {
    return InvalidArgumentError("found {}, expected a JSON object", Shown(json));
  }
  return json;
}

// Reads typed fields of one object; `where` goes before their names in messages.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  std::string Name(std::string_view field) const { return fmt::format("`{}{}`", where_, field); }
  const Json* Find(std::string_view field) const {
    const auto it = object_.find(field);
    return it == object_.end() ? nullptr : &*it;
  }
  Result<const Json*> Require(std::string_view field) const {
    if (const Json* value = Find(field)) return value;
    return InvalidArgumentError(
        "{} is missing; expected it to be written down, as the default of the class differs from "
        "the published models",
        Name(field));
  }
  Result<int64_t> Int(std::string_view field) const {
    const Json& value = *TRY(Require(field));
    // Also keeps unsigned values beyond int64 out.
    if (!value.is_number_integer() || value.get<double>() > 9e15) {
      return InvalidArgumentError("{} = {}; expected a whole number", Name(field), Shown(value));
    }
    return value.get<int64_t>();
  }
  Result<double> Number(std::string_view field) const {
    const Json& value = *TRY(Require(field));
    if (!value.is_number()) {
      return InvalidArgumentError("{} = {}; expected a number", Name(field), Shown(value));
    }
    return value.get<double>();
  }
  Result<bool> Bool(std::string_view field) const {
    const Json& value = *TRY(Require(field));
    if (!value.is_boolean()) {
      return InvalidArgumentError("{} = {}; expected true or false", Name(field), Shown(value));
    }
    return value.get<bool>();
  }
  Result<std::string> String(std::string_view field) const {
    const Json& value = *TRY(Require(field));
    if (!value.is_string()) {
      return InvalidArgumentError("{} = {}; expected a string", Name(field), Shown(value));
    }
    return value.get<std::string>();
  }
  const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::string where_;
};

Status CheckFixed(const Fields& fields) {
  for (const FixedField& fixed : FixedFields()) {
    const Json* value = fields.Find(fixed.name);
    if (value == nullptr && fixed.required) TRY(fields.Require(fixed.name));
    if (value == nullptr || *value == fixed.value) continue;
    return InvalidArgumentError("{} = {}; expected {}", fields.Name(fixed.name), Shown(*value),
                                Shown(fixed.value));
  }
  const Json* architectures = fields.Find("architectures");
  if (architectures != nullptr && *architectures != Json::array({"Olmo3ForCausalLM"})) {
    return InvalidArgumentError("`architectures` = {}; expected [\"Olmo3ForCausalLM\"]",
                                Shown(*architectures));
  }
  return {};
}

Status CheckKnown(const Json& object) {
  for (const auto& [name, value] : object.items()) {
    const bool fixed = std::ranges::any_of(
        FixedFields(), [&found = name](const FixedField& field) { return field.name == found; });
    if (fixed || IgnoredFields().contains(name) || ReadFields().contains(name)) continue;
    std::vector<std::string> known(ReadFields().begin(), ReadFields().end());
    for (const FixedField& field : FixedFields()) known.emplace_back(field.name);
    const auto nearest = NearestKey(name, known);
    return InvalidArgumentError("unknown field `{}` = {}{}", name, Shown(value),
                                nearest ? fmt::format("; did you mean `{}`?", *nearest)
                                        : "; expected the fields of Olmo3Config only");
  }
  return {};
}

Result<int64_t> ReadHeadDim(const Fields& fields, const Config& c) {
  const Json* value = fields.Find("head_dim");
  if (value != nullptr && !value->is_null()) return fields.Int("head_dim");
  if (c.num_heads < 1 || c.hidden_size % c.num_heads != 0) {
    return InvalidArgumentError(
        "`head_dim` is absent, and hidden_size % num_attention_heads = {} % {} is not 0",
        c.hidden_size, c.num_heads);
  }
  return c.hidden_size / c.num_heads;
}

Result<std::optional<int64_t>> ReadToken(const Fields& fields, const char* name) {
  const Json& value = *TRY(fields.Require(name));
  if (value.is_null()) return std::optional<int64_t>();
  return std::optional<int64_t>(TRY(fields.Int(name)));
}

// `dtype` (5.x) or `torch_dtype` (4.x); both if equal.
Result<std::string> ReadDType(const Fields& fields) {
  const bool old = fields.Find("torch_dtype") != nullptr, now = fields.Find("dtype") != nullptr;
  const std::string dtype = TRY(fields.String(now || !old ? "dtype" : "torch_dtype"));
  if (old && now && TRY(fields.String("torch_dtype")) != dtype) {
    return InvalidArgumentError("`dtype` = \"{}\" but `torch_dtype` = {}; expected them equal",
                                dtype, Shown(*fields.Find("torch_dtype")));
  }
  for (const char* known : {"bfloat16", "float16", "float32"}) {
    if (dtype == known) return dtype;
  }
  return InvalidArgumentError("`dtype` = \"{}\"; expected bfloat16, float16 or float32", dtype);
}

// The layers' types as a pattern and perhaps a last layer that leaves it.
struct Pattern {
  std::vector<LayerType> pattern;
  bool last_layer_full = false;
};

bool Follows(const std::vector<LayerType>& layers, const Pattern& p) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const bool forced = p.last_layer_full && l + 1 == layers.size();
    if (layers[l] != (forced ? LayerType::kFull : p.pattern[l % p.pattern.size()])) return false;
  }
  return true;
}

// OLMo 3's own pattern if it fits, else the shortest that repeats, else the whole list.
Pattern FindPattern(const std::vector<LayerType>& layers) {
  for (const bool last : {false, true}) {
    const Pattern usual{.pattern = Config().layer_pattern, .last_layer_full = last};
    if (Follows(layers, usual)) return usual;
  }
  constexpr size_t kLongestPeriod = 64;  // a longer one saves nothing
  for (const bool last : {false, true}) {
    for (size_t period = 1; period <= std::min(kLongestPeriod, layers.size() / 2); ++period) {
      const Pattern p{.pattern = {layers.begin(), layers.begin() + static_cast<int64_t>(period)},
                      .last_layer_full = last};
      if (Follows(layers, p)) return p;
    }
  }
  return {.pattern = layers, .last_layer_full = false};
}

Status ReadLayerTypes(const Fields& fields, Config& c) {
  const Json& types = *TRY(fields.Require("layer_types"));
  if (!types.is_array() || static_cast<int64_t>(types.size()) != c.num_layers) {
    return InvalidArgumentError("`layer_types` = {}; expected num_hidden_layers = {} strings",
                                Shown(types), c.num_layers);
  }
  std::vector<LayerType> layers;
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] != kSliding && types[l] != kFull) {
      return InvalidArgumentError("`layer_types[{}]` = {}; expected \"{}\" or \"{}\"", l,
                                  Shown(types[l]), kSliding, kFull);
    }
    layers.push_back(types[l] == kFull ? LayerType::kFull : LayerType::kSliding);
  }
  if (layers.empty()) return {};  // ValidateConfig speaks of num_layers
  Pattern found = FindPattern(layers);
  c.layer_pattern = std::move(found.pattern);
  c.last_layer_full = found.last_layer_full;
  return {};
}

// ---- rotary embedding ----

// What one kind of layer, or all of them, rotates by.
struct Rope {
  std::optional<double> theta;
  std::optional<Yarn> yarn;
};

Result<Yarn> ReadYarn(const Fields& fields) {
  Yarn yarn;
  yarn.factor = TRY(fields.Number("factor"));
  yarn.original_context = TRY(fields.Int("original_max_position_embeddings"));
  yarn.beta_fast = TRY(fields.Number("beta_fast"));
  yarn.beta_slow = TRY(fields.Number("beta_slow"));
  const Json* attention_factor = fields.Find("attention_factor");
  if (attention_factor != nullptr && !attention_factor->is_null()) {
    yarn.attention_factor = TRY(fields.Number("attention_factor"));
    if (!(yarn.attention_factor > 0)) {
      return InvalidArgumentError("{} = {}; expected above 0", fields.Name("attention_factor"),
                                  yarn.attention_factor);
    }
  }
  // The formula's own value is the formula: one spelling for one model.
  Yarn formula = yarn;
  formula.attention_factor = 0;
  if (yarn.attention_factor == formula.AttentionFactor()) yarn = formula;
  return yarn;
}

// {rope_type, rope_theta, factor, ...}
Result<Rope> ReadRope(const Fields& fields) {
  if (!fields.object().is_object()) {
    return InvalidArgumentError("{} = {}; expected an object", fields.Name(""),
                                Shown(fields.object()));
  }
  const bool old_name = fields.Find("rope_type") == nullptr && fields.Find("type") != nullptr;
  const std::string type = TRY(fields.String(old_name ? "type" : "rope_type"));
  if (type != "default" && type != "yarn") {
    return InvalidArgumentError("{} = \"{}\"; expected \"default\" or \"yarn\"",
                                fields.Name("rope_type"), type);
  }
  const Json* second = fields.Find("type");
  if (second != nullptr && *second != type) {
    return InvalidArgumentError("{} = {} but rope_type = \"{}\"; expected them equal",
                                fields.Name("type"), Shown(*second), type);
  }
  static const std::set<std::string, std::less<>> both = {"rope_type", "type", "rope_theta",
                                                          "partial_rotary_factor"},
                                                  of_yarn = {"factor",
                                                             "original_max_position_embeddings",
                                                             "beta_fast",
                                                             "beta_slow",
                                                             "attention_factor",
                                                             "truncate"};
  for (const auto& [name, value] : fields.object().items()) {
    if (both.contains(name) || (type == "yarn" && of_yarn.contains(name))) continue;
    return InvalidArgumentError("{} = {} is no field of rope_type \"{}\"", fields.Name(name),
                                Shown(value), type);
  }
  for (const FixedField& fixed :
       {FixedField{"partial_rotary_factor", 1.0}, FixedField{"truncate", true}}) {
    const Json* value = fields.Find(fixed.name);
    if (value == nullptr || *value == fixed.value) continue;
    return InvalidArgumentError("{} = {}; expected {}", fields.Name(fixed.name), Shown(*value),
                                Shown(fixed.value));
  }
  Rope rope;
  const Json* theta = fields.Find("rope_theta");
  if (theta != nullptr && !theta->is_null()) rope.theta = TRY(fields.Number("rope_theta"));
  if (type == "yarn") rope.yarn = TRY(ReadYarn(fields));
  return rope;
}

// All thetas that stand anywhere must agree: the pattern of layers has one.
Status MergeTheta(std::optional<double>& theta, const std::optional<double>& found,
                  const std::string& name) {
  if (!found) return {};
  if (theta && *theta != *found) {
    return InvalidArgumentError(
        "{} = {} but another rope_theta is {}; expected one theta for all "
        "layers",
        name, *found, *theta);
  }
  theta = found;
  return {};
}

Status ReadRopeParameters(const Json& parameters, Config& c, std::optional<double>& theta) {
  const Fields fields(parameters, "rope_parameters.");
  if (!parameters.is_object()) {
    return InvalidArgumentError("`rope_parameters` = {}; expected an object", Shown(parameters));
  }
  const bool by_type = parameters.contains(kSliding) || parameters.contains(kFull);
  if (!by_type) {
    // Flat, as regressed versions wrote it: meant for the full-attention layers.
    const Rope rope = TRY(ReadRope(fields));
    c.yarn = rope.yarn;
    return MergeTheta(theta, rope.theta, "`rope_parameters.rope_theta`");
  }
  for (const auto& [name, value] : parameters.items()) {
    if (name == kSliding || name == kFull) continue;
    return InvalidArgumentError(
        "`rope_parameters.{}` = {} beside the layer types; expected \"{}\" and \"{}\" only", name,
        Shown(value), kSliding, kFull);
  }
  const Json &sliding_json = *TRY(fields.Require(kSliding)),
             &full_json = *TRY(fields.Require(kFull));
  const Rope sliding = TRY(ReadRope(Fields(sliding_json, "rope_parameters.sliding_attention."))),
             full = TRY(ReadRope(Fields(full_json, "rope_parameters.full_attention.")));
  TRY(MergeTheta(theta, sliding.theta, "`rope_parameters.sliding_attention.rope_theta`"));
  TRY(MergeTheta(theta, full.theta, "`rope_parameters.full_attention.rope_theta`"));
  if (sliding.yarn && sliding.yarn != full.yarn) {
    return InvalidArgumentError(
        "`rope_parameters.sliding_attention` = {} but `full_attention` = {}; expected \"default\" "
        "for the sliding layers, or the same YaRN for both",
        Shown(sliding_json), Shown(full_json));
  }
  c.yarn = full.yarn;
  if (sliding.yarn) c.yarn_layers = YarnLayers::kAll;
  return {};
}

Status ReadRopeFields(const Fields& fields, Config& c) {
  std::optional<double> theta;
  const Json *top = fields.Find("rope_theta"), *scaling = fields.Find("rope_scaling"),
             *parameters = fields.Find("rope_parameters");
  if (top != nullptr && !top->is_null()) theta = TRY(fields.Number("rope_theta"));
  if (parameters != nullptr && !parameters->is_null()) {
    TRY(ReadRopeParameters(*parameters, c, theta));
  }
  if (scaling != nullptr && !scaling->is_null()) {
    const Rope rope = TRY(ReadRope(Fields(*scaling, "rope_scaling.")));
    TRY(MergeTheta(theta, rope.theta, "`rope_scaling.rope_theta`"));
    if (parameters != nullptr && !parameters->is_null() && rope.yarn != c.yarn) {
      return InvalidArgumentError(
          "`rope_scaling` = {} but `rope_parameters` = {}; expected them to "
          "say the same, or one of them only",
          Shown(*scaling), Shown(*parameters));
    }
    c.yarn = rope.yarn;
  }
  if (!theta) {
    return InvalidArgumentError(
        "no rope_theta, neither at the top nor in `rope_parameters`; expected it to be written "
        "down");
  }
  c.rope_theta = *theta;
  return {};
}

Result<Config> ReadConfig(std::string_view text) {
  const Json json = TRY(ParseObject(text));
  const Fields fields(json, "");
  TRY(CheckFixed(fields));
  TRY(CheckKnown(json));
  Config c;
  c.vocab_size = TRY(fields.Int("vocab_size"));
  c.hidden_size = TRY(fields.Int("hidden_size"));
  c.intermediate_size = TRY(fields.Int("intermediate_size"));
  c.num_layers = TRY(fields.Int("num_hidden_layers"));
  c.num_heads = TRY(fields.Int("num_attention_heads"));
  c.num_kv_heads = TRY(fields.Int("num_key_value_heads"));
  c.head_dim = TRY(ReadHeadDim(fields, c));
  c.max_position_embeddings = TRY(fields.Int("max_position_embeddings"));
  c.sliding_window = TRY(fields.Int("sliding_window"));
  TRY(ReadLayerTypes(fields, c));
  TRY(ReadRopeFields(fields, c));
  c.rms_norm_eps = TRY(fields.Number("rms_norm_eps"));
  c.tie_word_embeddings = TRY(fields.Bool("tie_word_embeddings"));
  c.initializer_range = TRY(fields.Number("initializer_range"));
  c.pad_token_id = TRY(ReadToken(fields, "pad_token_id"));
  c.bos_token_id = TRY(ReadToken(fields, "bos_token_id"));
  c.eos_token_id = TRY(ReadToken(fields, "eos_token_id"));
  c.dtype = TRY(ReadDType(fields));
  TRY(ValidateConfig(c));
  return c;
}

// ---- writing ----

Json RopeJson(const Config& c, const std::optional<Yarn>& yarn, bool with_theta) {
  Json json = {{"rope_type", yarn ? "yarn" : "default"}};
  if (with_theta) json["rope_theta"] = c.rope_theta;
  if (!yarn) return json;
  json["factor"] = yarn->factor;
  json["original_max_position_embeddings"] = yarn->original_context;
  json["beta_fast"] = yarn->beta_fast;
  json["beta_slow"] = yarn->beta_slow;
  json["attention_factor"] = yarn->AttentionFactor();
  return json;
}

Json TokenJson(const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

Result<Config> ConfigFromHf(std::string_view json, std::string_view name) {
  Result<Config> config = ReadConfig(json);
  if (!config.ok()) return config.error().WithContext(name);
  return config;
}

HfForm DefaultHfForm(const Config& config) {
  return config.rope_theta == kClassTheta && config.yarn_layers == YarnLayers::kFullAttention
             ? HfForm::kTransformers4
             : HfForm::kTransformers5;
}

std::string ConfigToHf(const Config& c, HfForm form) {
  CHECK(form == HfForm::kTransformers5 || c.yarn_layers == YarnLayers::kFullAttention,
        "transformers 4.x cannot say that YaRN is on all layers");
  Json json = {{"architectures", {"Olmo3ForCausalLM"}},
               {"model_type", "olmo3"},
               {"vocab_size", c.vocab_size},
               {"hidden_size", c.hidden_size},
               {"intermediate_size", c.intermediate_size},
               {"num_hidden_layers", c.num_layers},
               {"num_attention_heads", c.num_heads},
               {"num_key_value_heads", c.num_kv_heads},
               {"max_position_embeddings", c.max_position_embeddings},
               {"sliding_window", c.sliding_window},
               {"rms_norm_eps", c.rms_norm_eps},
               {"hidden_act", "silu"},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"tie_word_embeddings", c.tie_word_embeddings},
               {"initializer_range", c.initializer_range},
               {"pad_token_id", TokenJson(c.pad_token_id)},
               {"bos_token_id", TokenJson(c.bos_token_id)},
               {"eos_token_id", TokenJson(c.eos_token_id)},
               {"use_cache", false}};
  if (c.head_dim * c.num_heads != c.hidden_size) json["head_dim"] = c.head_dim;
  Json types = Json::array();
  for (int64_t l = 0; l < c.num_layers; ++l) types.push_back(c.is_full(l) ? kFull : kSliding);
  json["layer_types"] = types;
  if (form == HfForm::kTransformers4) {
    json["torch_dtype"] = c.dtype;
    json["rope_theta"] = c.rope_theta;
    json["rope_scaling"] = c.yarn ? RopeJson(c, c.yarn, false) : Json(nullptr);
  } else {
    json["dtype"] = c.dtype;
    json["rope_parameters"] = {{kSliding, RopeJson(c, c.yarn_of(LayerType::kSliding), true)},
                               {kFull, RopeJson(c, c.yarn_of(LayerType::kFull), true)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace ulmus::nn::olmo3
