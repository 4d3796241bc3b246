// Device meshes and shardings as plain data: nothing here knows a device.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/shape.h"

namespace ulmus {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// A named grid of devices. Device i of the mesh is the row-major index over the axes (last axis
// fastest), and is partition i of the compiled program.
class Mesh {
 public:
  Mesh() = default;  // one device, no axes
  // Axis names must be unique and sizes positive (CHECK).
  explicit Mesh(std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t num_devices() const;
  bool HasAxis(std::string_view name) const;
  int64_t AxisSize(std::string_view name) const;  // CHECKs that it exists
  int64_t AxisIndex(std::string_view name,
                    int64_t device) const;  // coordinate of `device` on the axis
  std::string ToString() const;             // "data=1 fsdp=4 tensor=2"
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
};

// How one tensor lies on a mesh: per dimension the mesh axes that split it (first is major); none =
// replicated.
struct Sharding {
  std::vector<std::vector<std::string>> dims;

  static Sharding Replicated(int64_t rank) {
    return {std::vector<std::vector<std::string>>(static_cast<size_t>(rank))};
  }
  bool IsReplicated() const;
  std::string ToString() const;  // "[{fsdp}, {}]"
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Number of parts dimension `dim` is cut into.
int64_t NumShards(const Mesh& mesh, const Sharding& sharding, int64_t dim);

// kInvalidArgument if rank differs, an axis is unknown or used twice, or a dimension does not
// divide: the message prints the equation ("dimension 1 of [8,10]: 10 % (tensor=4) = 2").
Status ValidateSharding(const Mesh& mesh, const Shape& shape, const Sharding& sharding);

// Shape of one device's block. The sharding must be valid for the shape (CHECK).
Shape LocalShape(const Mesh& mesh, const Shape& shape, const Sharding& sharding);

// Offset of `device`'s block along each dimension, in elements.
Dims ShardOffsets(const Mesh& mesh, const Shape& shape, const Sharding& sharding, int64_t device);

// Logical axis names ("batch", "embed") to mesh axes. One table per recipe; nothing else in a model
// knows meshes.
using AxisRules = std::map<std::string, std::vector<std::string>, std::less<>>;

// Sharding of a tensor whose dimensions carry logical names ("" = replicated). A mesh axis that an
// earlier dimension already uses, or that the mesh lacks, is skipped. kInvalidArgument for a name
// that the rules do not list.
Result<Sharding> ApplyRules(const AxisRules& rules, const Mesh& mesh,
                            std::span<const std::string> logical_axes);

}  // namespace ulmus
