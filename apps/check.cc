// `ulmus check`: everything about a run that can be told without a device.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/check_report.h"
#include "apps/commands.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

Json MemoryJson(const train::MemoryEstimate& memory) {
  return {{"weights", memory.weights},
          {"moments", memory.moments},
          {"batch", memory.batch},
          {"gradients", memory.gradients},
          {"activations", memory.activations},
          {"total", memory.total()}};
}

// What is known of a run whose recipe could be read.
void AddRun(const CheckReport& report, Json& json) {
  json["params"] = report.params;
  json["params_with_padding"] = report.padded_params;
  json["state_bytes"] = report.state_bytes;
  json["memory_bytes"] = report.memory ? Json(report.memory->total()) : Json();
  if (report.memory) json["memory"] = MemoryJson(*report.memory);
  json["device"] = report.fit.device.empty() ? Json() : Json(report.fit.device);
  json["device_bytes"] = report.fit.device_bytes ? Json(*report.fit.device_bytes) : Json();
  json["fits"] = report.fit.fits ? Json(*report.fit.fits) : Json();
  json["devices"] = report.mesh.num_devices();
  json["mesh"] = train::MeshText(report.mesh);
  json["tokens_per_step"] = report.config->tokens_per_step();
  if (report.last_step) json["last_step"] = *report.last_step;
  for (const RatePoint& point : report.rates)
    json["learning_rates"].push_back(
        {{"what", point.what}, {"step", point.step}, {"lr", point.lr}});
  for (const auto& [formula, flops] : report.flops_per_token)
    json["flops_per_token"][formula] = flops;
  if (const auto& data = report.data) {
    json["data"] = {
        {"instances", data->instances},    {"files", data->files},
        {"bytes", data->size_bytes},       {"steps", data->steps ? Json(*data->steps) : Json()},
        {"left_over", data->left_over},    {"order", data->order},
        {"fingerprint", data->fingerprint}};
  }
  if (const auto& disk = report.disk) {
    json["disk"] = {{"folder", disk->folder},
                    {"checkpoints", disk->checkpoints},
                    {"checkpoint_bytes", disk->checkpoint_bytes},
                    {"needed_bytes", disk->needed_bytes},
                    {"free_bytes", disk->free_bytes}};
  }
  for (const ParameterRow& row : report.parameters) {
    json["parameters"].push_back({{"name", row.name},
                                  {"shape", row.shape.dims()},
                                  {"tensors", row.tensors},
                                  {"weight_decay", row.weight_decay},
                                  {"lr_factor", row.lr_factor}});
  }
  for (const nn::olmo3::InitRow& row : report.init) {
    json["init"].push_back({{"name", row.name},
                            {"mean", row.mean},
                            {"std", row.stddev},
                            {"expected_std", row.expected_stddev}});
  }
}

Json ReportJson(const CheckReport& report) {
  Json json = {{"holds", report.holds()}, {"errors", Json::array()}, {"warnings", report.warnings}};
  for (const RecipeError& error : report.errors) {
    json["errors"].push_back(
        {{"key", error.key}, {"message", error.message}, {"origin", error.origin.ToString()}});
  }
  // Keys that readers rely on, whether known or not.
  json["params"] = json["state_bytes"] = json["memory_bytes"] = nullptr;
  if (report.config) AddRun(report, json);
  return json;
}

std::string Bytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= 10'000'000'000) return fmt::format("{:.1f} GB", value / 1e9);
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.1f} kB", value / 1e3);
}

std::string FitText(const MemoryFit& fit) {
  if (fit.device.empty()) return "not judged: --device names the kind of device";
  if (!fit.device_bytes) return fmt::format("unknown: the memory of a {} is not known", fit.device);
  const std::string has = fmt::format("a {} has {} for it", fit.device, Bytes(*fit.device_bytes));
  if (!fit.fits) return fmt::format("unknown: {}", has);
  return fmt::format("{}: {}", *fit.fits ? "yes" : "no", has);
}

void PrintMemory(const CheckReport& report) {
  if (!report.memory) return;
  const train::MemoryEstimate& m = *report.memory;
  fmt::print("\nMemory of one device of {} (estimate, remat {}{})\n", report.mesh.num_devices(),
             report.config->train.remat, ", mesh " + train::MeshText(report.mesh));
  const std::pair<const char*, int64_t> rows[] = {
      {"weights, float32", m.weights}, {"moments", m.moments},         {"batch", m.batch},
      {"gradients", m.gradients},      {"activations", m.activations}, {"total", m.total()}};
  for (const auto& [name, bytes] : rows) fmt::print("  {:<18}{:>12}\n", name, Bytes(bytes));
  fmt::print("  {:<18}{}\n", "fits", FitText(report.fit));
}

void PrintParameters(const CheckReport& report) {
  fmt::print("\n  {:<50} {:>16} {:>8} {:>8} {:>8}\n", "parameters", "shape", "tensors", "decay",
             "lr times");
  for (const ParameterRow& row : report.parameters) {
    fmt::print("  {:<50} {:>16} {:>8} {:>8} {:>8}\n", row.name, row.shape.ToString(), row.tensors,
               row.weight_decay, row.lr_factor);
  }
}

void PrintRates(const CheckReport& report) {
  fmt::print("\n  {:<40} {:>12} {:>24}\n", "learning rate", "step", "");
  for (const RatePoint& point : report.rates)
    fmt::print("  {:<40} {:>12} {:>24.12g}\n", point.what, point.step, point.lr);
}

void PrintRun(const CheckReport& report) {
  fmt::print("parameters    {}", report.params);
  if (report.padded_params != report.params)
    fmt::print(" ({} with the vocabulary's padding)", report.padded_params);
  fmt::print("\nstate         {} bytes: weights, two moments\n", report.state_bytes);
  fmt::print("batch         {} instances of {} tokens = {} tokens, in {} microbatches\n",
             report.config->data.global_batch, report.config->data.sequence_length,
             report.config->tokens_per_step(), report.config->train.microbatches);
  if (report.last_step) fmt::print("last step     {}\n", *report.last_step);
  if (const auto& data = report.data) {
    fmt::print("data          {} instances in {} files, {}; {}, {} left over, order {}\n",
               data->instances, data->files, Bytes(data->size_bytes),
               data->steps ? fmt::format("{} steps", *data->steps) : "epoch after epoch",
               data->left_over, data->order);
  }
  if (const auto& disk = report.disk) {
    fmt::print("disk          {} checkpoints at most, {} each: {} of {} free at {}\n",
               disk->checkpoints, Bytes(disk->checkpoint_bytes), Bytes(disk->needed_bytes),
               Bytes(disk->free_bytes), disk->folder);
  }
  fmt::print("FLOPs/token  ");
  for (const auto& [formula, flops] : report.flops_per_token)
    fmt::print(" {} {:.0f} ", formula, flops);
  fmt::print("\n");
  PrintMemory(report);
  PrintRates(report);
  PrintParameters(report);
  if (!report.init.empty()) fmt::print("\n{}", FormatInitTable(report.init));
}

void PrintFindings(const CheckReport& report, const std::string& recipe) {
  for (const std::string& warning : report.warnings) fmt::print("\nwarning: {}\n", warning);
  if (report.holds()) {
    fmt::print("\n{}: holds\n", recipe);
    return;
  }
  std::fflush(stdout);
  fmt::print(stderr, "error: {} does not hold, {} error{}:\n", recipe, report.errors.size(),
             report.errors.size() == 1 ? "" : "s");
  for (const RecipeError& error : report.errors) {
    const bool placed = error.origin.kind != Origin::Kind::kDefault;
    const std::string where = placed ? error.origin.ToString() : error.key;
    fmt::print(stderr, "  {}{}{}\n", where, where.empty() ? "" : ": ", error.message);
  }
}

int RunCheck(const CheckInput& input, bool json) {
  const CheckReport report = CheckRun(input);
  if (json) {
    fmt::print("{}\n", ReportJson(report).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    if (report.config) PrintRun(report);
    PrintFindings(report, input.recipe);
  }
  return report.exit_code();
}

}  // namespace

void AddCheck(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "check", "Validate everything about a run without a device: recipe, data, disk, memory");
  const auto input = std::make_shared<CheckInput>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("recipe", input->recipe, "Recipe file (TOML), or name of a preset")
      ->required();
  command
      ->add_option("--set", input->flags,
                   "key=value: overrides the recipe; may be given many times")
      ->allow_extra_args(false);
  command
      ->add_option("--devices", input->devices,
                   "Devices to lay the mesh on (those that its axes multiply to)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--device", input->device,
                      "Kind of device whose memory a step must fit: cpu (this machine's), or as "
                      "PJRT calls it: \"TPU v5p\", \"NVIDIA H100\"");
  command->add_option("--run-dir", input->run_dir,
                      "Where the run will save: no folder can be made there, or too little free "
                      "space, is an error");
  command->add_flag("--init-table", input->init_table,
                    "Mean and standard deviation of every tensor as drawn");
  command->add_flag("--json", *json, "Print one JSON object");
  std::string presets;
  for (const RecipeSource& preset : train::Presets()) presets += " " + preset.name;
  command->footer(
      "Exit code: 0 it holds, 2 it does not, 3 only data or a checkpoint is damaged.\nExample: "
      "ulmus check olmo3_7b_stage1 --set mesh.fsdp=64 --device \"TPU v5p\" --json\nPresets:" +
      presets);
  command->callback(
      [input, json, &run] { run = [input, json] { return RunCheck(*input, *json); }; });
}

}  // namespace ulmus::apps
