// Some instances of a dataset, by number: a subset, or the exact batches that another program read.
#pragma once

#include <memory>

#include "base/file.h"
#include "base/status.h"
#include "data/instance_source.h"

namespace ulmus::data {

// Instance i is instance ids[i] of `all`; an id may stand there twice. `ids` is a file of
// headerless little-endian u32, which must not change while the source lives. Its content is part
// of the fingerprint. kInvalidArgument if `all` keeps pieces of longer sequences together.
// kDataLoss if the file has no whole number of ids, or names an instance that does not exist.
Result<std::unique_ptr<InstanceSource>> MakeSelection(std::unique_ptr<InstanceSource> all,
                                                      const Path& ids);

}  // namespace ulmus::data
