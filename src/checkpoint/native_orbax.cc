#include "checkpoint/native_orbax.h"

#include "base/json.h"

namespace ulmus::checkpoint {
namespace {

constexpr int kDictionaryKey = 2;  // KeyType.DICT

// The Python tuple ('name',) as Orbax prints it; tensor names hold no quotes or backslashes.
std::string TupleText(const std::string& name) { return fmt::format("('{}',)", name); }

}  // namespace

std::string OrbaxTreeText(std::span<const TensorInfo> tensors) {
  Json tree = Json::object();
  for (const TensorInfo& tensor : tensors) {
    const Json key = {{"key", tensor.name}, {"key_type", kDictionaryKey}};
    tree[TupleText(tensor.name)] = {{"key_metadata", Json::array({key})},
                                    {"value_metadata",
                                     {{"value_type", "np.ndarray"},
                                      {"skip_deserialize", false},
                                      {"write_shape", tensor.type.shape.dims()}}}};
  }
  return JsonText({{"tree_metadata", std::move(tree)},
                   {"use_ocdbt", false},
                   {"use_zarr3", true},
                   {"store_array_data_equal_to_fill_value", true},
                   {"custom_metadata", nullptr}});
}

std::string OrbaxCheckpointText() {
  return JsonText({{"item_handlers",
                    "orbax.checkpoint._src.handlers.pytree_checkpoint_handler."
                    "PyTreeCheckpointHandler"},
                   {"metrics", Json::object()},
                   {"performance_metrics", Json::object()},
                   {"init_timestamp_nsecs", nullptr},
                   {"commit_timestamp_nsecs", nullptr},
                   {"custom_metadata", Json::object()}});
}

}  // namespace ulmus::checkpoint
