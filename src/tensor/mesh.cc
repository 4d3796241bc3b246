#include "tensor/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"

namespace ulmus {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  for (const MeshAxis& axis : axes_) {
    CHECK(axis.size > 0, "mesh axis {} has size {}", axis.name, axis.size);
    CHECK(names.insert(axis.name).second, "mesh axis {} is named twice", axis.name);
  }
}

int64_t Mesh::num_devices() const {
  int64_t count = 1;
  for (const MeshAxis& axis : axes_) count *= axis.size;
  return count;
}

bool Mesh::HasAxis(std::string_view name) const {
  return std::ranges::any_of(axes_, [&](const MeshAxis& axis) { return axis.name == name; });
}

int64_t Mesh::AxisSize(std::string_view name) const {
  const auto it = std::ranges::find(axes_, name, &MeshAxis::name);
  CHECK(it != axes_.end(), "mesh ({}) has no axis {}", ToString(), name);
  return it->size;
}

int64_t Mesh::AxisIndex(std::string_view name, int64_t device) const {
  int64_t stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    if (axes_[i].name == name) return device / stride % axes_[i].size;
    stride *= axes_[i].size;
  }
  CHECK(false, "mesh ({}) has no axis {}", ToString(), name);
  return 0;
}

std::string Mesh::ToString() const {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes_) parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, " "));
}

bool Sharding::IsReplicated() const {
  return std::ranges::all_of(dims, [](const auto& axes) { return axes.empty(); });
}

std::string Sharding::ToString() const {
  std::vector<std::string> parts;
  for (const auto& axes : dims) parts.push_back(fmt::format("{{{}}}", fmt::join(axes, ",")));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

int64_t NumShards(const Mesh& mesh, const Sharding& sharding, int64_t dim) {
  int64_t count = 1;
  for (const std::string& axis : sharding.dims[static_cast<size_t>(dim)])
    count *= mesh.AxisSize(axis);
  return count;
}

Status ValidateSharding(const Mesh& mesh, const Shape& shape, const Sharding& sharding) {
  if (static_cast<int64_t>(sharding.dims.size()) != shape.rank()) {
    return InvalidArgumentError("sharding {} names {} dimensions, the tensor {} has {}",
                                sharding.ToString(), sharding.dims.size(), shape.ToString(),
                                shape.rank());
  }
  std::set<std::string> used;
  for (int64_t d = 0; d < shape.rank(); ++d) {
    std::vector<std::string> factors;
    for (const std::string& axis : sharding.dims[static_cast<size_t>(d)]) {
      if (!mesh.HasAxis(axis)) {
        return InvalidArgumentError("sharding {}: the mesh ({}) has no axis '{}'",
                                    sharding.ToString(), mesh.ToString(), axis);
      }
      if (!used.insert(axis).second) {
        return InvalidArgumentError("sharding {} uses mesh axis '{}' twice", sharding.ToString(),
                                    axis);
      }
      factors.push_back(fmt::format("{}={}", axis, mesh.AxisSize(axis)));
    }
    const int64_t shards = NumShards(mesh, sharding, d);
    if (shape.dim(d) % shards != 0) {
      return InvalidArgumentError(
          "dimension {} of {} does not divide over the mesh: {} % ({}) = {}", d, shape.ToString(),
          shape.dim(d), fmt::join(factors, " * "), shape.dim(d) % shards);
    }
  }
  return {};
}

Shape LocalShape(const Mesh& mesh, const Shape& shape, const Sharding& sharding) {
  const Status valid = ValidateSharding(mesh, shape, sharding);
  CHECK(valid.ok(), "{}", valid.message());
  Dims local = shape.dims();
  for (size_t d = 0; d < local.size(); ++d)
    local[d] /= NumShards(mesh, sharding, static_cast<int64_t>(d));
  return Shape(local);
}

Dims ShardOffsets(const Mesh& mesh, const Shape& shape, const Sharding& sharding, int64_t device) {
  const Shape local = LocalShape(mesh, shape, sharding);
  Dims offsets(local.dims().size(), 0);
  for (size_t d = 0; d < offsets.size(); ++d) {
    int64_t block = 0;
    for (const std::string& axis : sharding.dims[d])
      block = block * mesh.AxisSize(axis) + mesh.AxisIndex(axis, device);
    offsets[d] = block * local.dims()[d];
  }
  return offsets;
}

Result<Sharding> ApplyRules(const AxisRules& rules, const Mesh& mesh,
                            std::span<const std::string> logical_axes) {
  Sharding sharding = Sharding::Replicated(static_cast<int64_t>(logical_axes.size()));
  std::set<std::string> used;
  for (size_t d = 0; d < logical_axes.size(); ++d) {
    if (logical_axes[d].empty()) continue;
    const auto rule = rules.find(logical_axes[d]);
    if (rule == rules.end()) {
      std::vector<std::string> known;
      for (const auto& [name, axes] : rules) known.push_back(name);
      return InvalidArgumentError("no sharding rule for the logical axis '{}'; known: {}",
                                  logical_axes[d], fmt::join(known, ", "));
    }
    for (const std::string& axis : rule->second) {
      if (mesh.HasAxis(axis) && used.insert(axis).second) sharding.dims[d].push_back(axis);
    }
  }
  return sharding;
}

}  // namespace ulmus
