// NumPy's shuffle of more numbers than fit in memory, written to a file with bounded memory.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/status.h"
#include "data/permutation_file.h"

namespace ulmus::data {

struct PermutationBuildOptions {
  int64_t memory_bytes = int64_t{256}
                         << 20;  // for entries; buffers come on top, about 1 MiB a band
};

// Writes the permutation to `path`, atomically. Needs up to 3 times the file's size on the same
// disk while it works (2 times of it under no name, so that nothing is left behind, however the
// process ends); all I/O is sequential. kResourceExhausted before the work starts if the disk has
// less free, or when it fills up.
//
// A shuffle goes from the last position down and swaps each with a random one below it, so it
// cannot be cut into independent pieces. It is played band by band, from the top: a swap with a
// lower band is sent there as (position, value going in); that band, when its turn comes, plays its
// messages in the order they were sent and answers with the values that came out. A last pass draws
// the same numbers again and puts the answers in place. The result is the same to the last entry
// for any number of bands.
Status BuildPermutation(const PermutationId& id, const Path& path,
                        const PermutationBuildOptions& options = {});

}  // namespace ulmus::data
