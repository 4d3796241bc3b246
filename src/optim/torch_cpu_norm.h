// The global norm with the rounding of PyTorch's CPU kernel, to reproduce runs made with it.
#pragma once

#include <cstdint>

#include "graph/value.h"

namespace ulmus::optim {

// sqrt of the sum of squares, as `torch.stack([g.norm() for g in grads]).norm()` rounds it on a CPU
// with AVX2: 8 float32 lanes, each adding every 8th square one after the other (vector_norm,
// aten/src/ATen/native/cpu/ReduceOpsKernel.cpp). A lane that has grown large drops small squares,
// so the norm of a 4096 x 192 gradient comes out up to 1e-4 too small. Only for one device: it is
// slow, and shards would add in another order.
// tensors: f32. num_slices[i]: equal parts along the first axis of tensor i that were tensors of
// their own (the layers of a stack), else 1. Returns f32 [].
graph::Value TorchCpuGlobalNorm(graph::Graph& graph, const graph::Values& tensors,
                                const Dims& num_slices, Loc loc = Loc::current());

}  // namespace ulmus::optim
