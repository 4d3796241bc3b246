#include "residual_mlp/config.h"

#include "base/recipe_struct.h"

namespace ulmus::residual_mlp {
namespace {

const StructSchema<Config::Model>& ModelSchema() {
  static const auto schema =
      StructSchema<Config::Model>("model")
          .Add("num_layers", &Config::Model::num_layers,
               {.help = "residual layers", .min = 1, .max = 4096})
          .Add("context_bytes", &Config::Model::context_bytes,
               {.help = "bytes the prediction sees", .min = 1, .max = 4096})
          .Add("embedding_width", &Config::Model::embedding_width,
               {.help = "width of one byte's embedding", .min = 1, .max = 1024})
          .Add("hidden_width", &Config::Model::hidden_width,
               {.help = "width inside a layer", .min = 1, .max = 1048576})
          .Add("remat", &Config::Model::remat, {.help = "recompute layers in the backward pass"})
          .Add("kernels", &Config::Model::kernels,
               {.help = "use our CPU kernels where there are any"});
  return schema;
}

const StructSchema<Config::Train>& TrainSchema() {
  static const auto schema =
      StructSchema<Config::Train>("train")
          .Add("steps", &Config::Train::steps,
               {.help = "optimizer steps", .min = 1, .max = 1000000000})
          .Add("batch_size", &Config::Train::batch_size,
               {.help = "predictions per step", .min = 1, .max = 1048576})
          .Add("eval_interval", &Config::Train::eval_interval,
               {.help = "steps between held-out evaluations", .min = 1})
          .Add("seed", &Config::Train::seed, {.help = "of weights and batches", .min = 0});
  return schema;
}

const StructSchema<Config::Optim>& OptimSchema() {
  static const auto schema =
      StructSchema<Config::Optim>("optim")
          .Add("lr", &Config::Optim::lr, {.help = "learning rate after warm-up", .above = 0})
          .Add("warmup_steps", &Config::Optim::warmup_steps,
               {.help = "steps of linear warm-up", .min = 0})
          .Add("beta1", &Config::Optim::beta1,
               {.help = "decay of the first moment", .min = 0, .below = 1})
          .Add("beta2", &Config::Optim::beta2,
               {.help = "decay of the second moment", .min = 0, .below = 1})
          .Add("eps", &Config::Optim::eps,
               {.help = "added to the root of the second moment", .above = 0})
          .Add("weight_decay", &Config::Optim::weight_decay,
               {.help = "decoupled decay, times the learning rate", .min = 0})
          .Add("max_grad_norm", &Config::Optim::max_grad_norm,
               {.help = "global norm that gradients are scaled down to", .above = 0});
  return schema;
}

const StructSchema<Config::MeshSizes>& MeshSchema() {
  static const auto schema =
      StructSchema<Config::MeshSizes>("mesh")
          .Add("fsdp", &Config::MeshSizes::fsdp,
               {.help = "devices that share batch and weights", .min = 1, .max = 256})
          .Add("tensor", &Config::MeshSizes::tensor,
               {.help = "devices that share each layer's hidden width", .min = 1, .max = 256});
  return schema;
}

const StructSchema<Config::Data>& DataSchema() {
  static const auto schema = StructSchema<Config::Data>("data").Add(
      "paths", &Config::Data::paths, {.help = "text files, read as bytes"});
  return schema;
}

constexpr int64_t kMaxDevices = 256;  // a thread each, all on this machine's cores

Status CheckDivides(const char* what, int64_t size, const char* axis, int64_t parts) {
  if (size % parts == 0) return {};
  return InvalidArgumentError(
      "{} = {} does not divide over {} = {}: {} % {} = {}; change one of them", what, size, axis,
      parts, size, parts, size % parts);
}

}  // namespace

const Schema& ConfigSchema() {
  static const Schema schema = [] {
    Schema s;
    ModelSchema().AddTo(s);
    TrainSchema().AddTo(s);
    OptimSchema().AddTo(s);
    MeshSchema().AddTo(s);
    DataSchema().AddTo(s);
    return s;
  }();
  return schema;
}

Config ReadConfig(const Recipe& recipe) {
  return {.model = ModelSchema().Read(recipe),
          .train = TrainSchema().Read(recipe),
          .optim = OptimSchema().Read(recipe),
          .mesh = MeshSchema().Read(recipe),
          .data = DataSchema().Read(recipe)};
}

Mesh MeshOf(const Config& config) {
  return Mesh({{"fsdp", config.mesh.fsdp}, {"tensor", config.mesh.tensor}});
}

Status ValidateConfig(const Config& config) {
  if (MeshOf(config).num_devices() > kMaxDevices) {
    return InvalidArgumentError(
        "mesh.fsdp * mesh.tensor = {} * {} = {} virtual devices; at most {}", config.mesh.fsdp,
        config.mesh.tensor, MeshOf(config).num_devices(), kMaxDevices);
  }
  TRY(CheckDivides("train.batch_size", config.train.batch_size, "mesh.fsdp", config.mesh.fsdp));
  TRY(CheckDivides("model.context_bytes * model.embedding_width", config.model.width(), "mesh.fsdp",
                   config.mesh.fsdp));
  TRY(CheckDivides("model.hidden_width", config.model.hidden_width, "mesh.tensor",
                   config.mesh.tensor));
  return CheckDivides("256 byte values", 256, "mesh.tensor", config.mesh.tensor);
}

}  // namespace ulmus::residual_mlp
