// The two files Orbax wants beside zarr arrays to open them as one PyTree.
#pragma once

#include <span>
#include <string>

#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kOrbaxTreeName = "_METADATA";
inline constexpr std::string_view kOrbaxCheckpointName = "_CHECKPOINT_METADATA";

// A flat dictionary: tensor name -> np.ndarray, which Orbax restores without being told a sharding;
// with one it gives jax.Array. Source: orbax-checkpoint 0.12.8, what PyTreeCheckpointHandler
// writes.
std::string OrbaxTreeText(std::span<const TensorInfo> tensors);
// Without times: equal checkpoints have equal bytes.
std::string OrbaxCheckpointText();

}  // namespace ulmus::checkpoint
