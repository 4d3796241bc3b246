// What the collectives share: who talks to whom.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/interpret.h"
#include "graph/print.h"
#include "graph/value.h"

namespace ulmus::graph {

struct CollectiveAttrs : Attrs {
  std::vector<std::string> axes;
  int64_t dim = 0;         // all_gather, reduce_scatter; split dimension of all_to_all
  int64_t concat_dim = 0;  // all_to_all
  int64_t shift = 0;       // collective_permute
};

int64_t GroupSize(const Mesh& mesh, const std::vector<std::string>& axes);
// Devices that differ only along `axes`, each group in row-major order of `axes` (first is major).
std::vector<std::vector<int64_t>> Groups(const Mesh& mesh, const std::vector<std::string>& axes);
// "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
std::string GroupsText(const std::vector<std::vector<int64_t>>& groups);
// CHECKs that the current region lies in a manual region over all of `axes`.
void CheckManual(const char* op, Graph& graph, const std::vector<std::string>& axes,
                 const Loc& loc);
// "channel_handle = ..., replica_groups = ..." of a collective over the node's axes.
std::string ChannelText(Printer& p, const Node& n);
// Calls f(group) for each group and binds result 0 of every member to what f gives for it.
void EvaluateGroups(
    Interpreter& interpreter, const Node& n,
    const std::function<std::vector<RefTensor>(const std::vector<const RefTensor*>& members)>& f);
// The block of `shape` at `offset`, and back.
RefTensor CutBlock(const RefTensor& whole, const Dims& offset, const Shape& shape);
void SetBlock(const RefTensor& block, const Dims& offset, RefTensor& whole);
// x's block `index` of `count` along `dim`, and blocks put together along `dim`.
RefTensor BlockOf(const RefTensor& x, int64_t dim, int64_t index, int64_t count);
RefTensor Joined(const std::vector<RefTensor>& parts, int64_t dim);
RefTensor SumOf(const std::vector<const RefTensor*>& parts);

}  // namespace ulmus::graph
