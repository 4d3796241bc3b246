// Options of commands that compute with a model: which plugin, dtype and mesh.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "pjrt/client.h"
#include "tensor/dtype.h"
#include "tensor/mesh.h"

namespace ulmus::apps {

struct ModelOptions {
  std::string checkpoint, plugin, dtype = "f32";
};

// The positional CKPT, --plugin and --dtype.
void AddModelOptions(CLI::App& command, ModelOptions& options);

// f32 or bf16; kInvalidArgument otherwise.
Result<DType> ComputeDType(const std::string& name);

// "tensor=2,fsdp=2": axes data, fsdp and tensor. Empty: one device.
Result<Mesh> ParseMesh(const std::string& text);

Result<std::unique_ptr<pjrt::Client>> MakeClient(const std::string& plugin, const Mesh& mesh);

// Check of an option: decimal digits alone, from `least` to `most`. CLI11 itself takes "-1" for an
// unsigned number, "010" for eight, and the largest number there is for one that is larger.
CLI::Validator WholeNumber(uint64_t least, uint64_t most = INT64_MAX);

// Check of an option: a number from 0 to `most`. CLI11 itself takes "nan", which no limit holds.
CLI::Validator NumberUpTo(double most);

// "1 2 3", commas allowed. kInvalidArgument names what is no number.
Result<std::vector<int32_t>> ParseIds(const std::string& text);

}  // namespace ulmus::apps
