// Arrays on devices: Buffer is one device's block, ShardedArray a global tensor cut over a mesh.
// PJRT knows only buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "pjrt/handles.h"
#include "tensor/host_tensor.h"
#include "tensor/mesh.h"
#include "tensor/shape.h"

namespace ulmus::pjrt {

class Client;

// A dense row-major array on one device. Move-only; must not outlive its client. Used by one thread
// at a time. Operations may return before the bytes are there; whatever reads the buffer waits for
// them.
class Buffer {
 public:
  Buffer() = default;  // as if deleted
  // Takes ownership of `handle`.
  Buffer(const PJRT_Api* api, PJRT_Buffer* handle, std::shared_ptr<const TensorType> type,
         int64_t device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  // Copies `bytes`, which may be reused on return. `device` is an index into Client::devices().
  static Result<Buffer> FromHost(Client& client, std::shared_ptr<const TensorType> type,
                                 std::span<const std::byte> bytes, int64_t device);
  // Uses the host memory itself when its address is a multiple of kHostAlignment (64) and the
  // plugin can; otherwise copies: ViewsHostMemory() says which. `keeper` owns the memory and is
  // released, on a thread of the plugin, when the device no longer needs it. The memory must not
  // change before. kInvalidArgument if the sizes differ.
  static Result<Buffer> FromHostZeroCopy(Client& client, std::shared_ptr<const TensorType> type,
                                         std::span<const std::byte> bytes,
                                         std::shared_ptr<const void> keeper, int64_t device);

  const TensorType& type() const { return *type_; }
  int64_t device() const { return device_; }
  PJRT_Buffer* handle() const { return handle_; }

  // True after donation, Delete() or a move.
  bool IsDeleted() const;
  // Frees the device memory once running programs no longer use it.
  void Delete() { Reset(); }
  // Waits until the bytes are there; an error of the program that makes them surfaces here.
  Status Wait() const;

  // Row-major bytes. `target` must have type().size_bytes().
  Status ToHost(std::span<std::byte> target) const;
  // Bytes [offset, offset + target.size()) as they lie in the device's memory. kOutOfRange beyond
  // the end.
  Status CopyRawToHost(int64_t offset, std::span<std::byte> target) const;
  Result<Buffer> CopyToDevice(Client& client, int64_t device) const;
  // Address of the device memory. The buffer must be ready, and stay alive while the address is in
  // use.
  Result<void*> UnsafePointer() const;
  // True if the buffer is the host memory it was made from.
  bool ViewsHostMemory() const { return views_host_memory_; }

 private:
  friend class ShardedArray;
  friend class Executable;
  void Reset();
  // Starts the copy; the returned event (owned by the caller) fires when it is done.
  Result<PJRT_Event*> StartToHost(std::span<std::byte> target) const;

  const PJRT_Api* api_ = nullptr;
  PJRT_Buffer* handle_ = nullptr;
  std::shared_ptr<const TensorType> type_;
  int64_t device_ = 0;
  bool views_host_memory_ = false;
};

// Fills a buffer in pieces, so that a large tensor need not be in host memory as a whole. The
// buffer may be given to a program before its bytes have arrived: the program waits. Destroying an
// unfinished upload fails the programs that wait.
class ChunkedUpload {
 public:
  static Result<ChunkedUpload> Start(Client& client, TensorType type, int64_t device);
  ChunkedUpload(ChunkedUpload&& other) noexcept;
  ChunkedUpload& operator=(ChunkedUpload&& other) noexcept;
  ~ChunkedUpload() { Reset(); }

  // The buffer being filled. May be taken once.
  Result<Buffer> TakeBuffer();
  // Sends `chunk` to the byte range that starts at `offset` and returns at once; `keeper` owns the
  // chunk's memory and is released when it has been read. Ranges must not overlap; together they
  // must cover the buffer. kOutOfRange past the end.
  Status Write(int64_t offset, std::span<const std::byte> chunk,
               std::shared_ptr<const void> keeper);
  bool Complete() const { return written_bytes_ == size_bytes_; }

 private:
  ChunkedUpload() = default;
  void Reset();

  const PJRT_Api* api_ = nullptr;
  PJRT_AsyncHostToDeviceTransferManager* manager_ = nullptr;
  Buffer buffer_;
  bool taken_ = false;
  int64_t size_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

// How a global tensor lies on devices. Immutable and shared by all arrays that lie the same way, so
// that comparing two layouts is mostly comparing two pointers.
struct ArrayLayout {
  TensorType type;  // global
  Mesh mesh;
  Sharding sharding;
  std::vector<int64_t> devices;  // device of each mesh position, as indices into Client::devices()
  std::shared_ptr<const TensorType> local;

  // kInvalidArgument if the sharding does not fit the shape. `devices` empty means 0, 1, 2, ...
  static Result<std::shared_ptr<const ArrayLayout>> Create(TensorType type, Mesh mesh,
                                                           Sharding sharding,
                                                           std::vector<int64_t> devices = {});
  // True if both put the same elements on the same devices, whatever the axes are called.
  bool Equivalent(const ArrayLayout& other) const;
  std::string ToString() const;  // "f32[8,4] as [{fsdp}, {}] on (fsdp=4)"
};

// A global tensor as one buffer per device of a mesh. Move-only; must not outlive its client.
class ShardedArray {
 public:
  ShardedArray() = default;
  // Buffer i is mesh position i. kInvalidArgument if their number, types or devices do not fit the
  // layout.
  static Result<ShardedArray> FromBuffers(std::shared_ptr<const ArrayLayout> layout,
                                          std::vector<Buffer> buffers);
  // Cuts and copies `tensor` to the first devices of the client (or those the layout names).
  static Result<ShardedArray> FromHost(Client& client, const HostTensor& tensor, const Mesh& mesh,
                                       const Sharding& sharding);
  static Result<ShardedArray> FromHost(Client& client, const HostTensor& tensor,
                                       std::shared_ptr<const ArrayLayout> layout);
  // Builds the array from blocks: `block(offsets, shape)` gives the bytes of one block; blocks that
  // several devices hold are asked for once.
  using BlockFn = std::function<Result<HostTensor>(const Dims& offsets, const Shape& shape)>;
  static Result<ShardedArray> FromBlocks(Client& client, std::shared_ptr<const ArrayLayout> layout,
                                         const BlockFn& block);

  const TensorType& type() const { return layout_->type; }
  const Mesh& mesh() const { return layout_->mesh; }
  const Sharding& sharding() const { return layout_->sharding; }
  const TensorType& local_type() const { return *layout_->local; }
  const std::shared_ptr<const ArrayLayout>& layout() const { return layout_; }

  int64_t num_shards() const { return static_cast<int64_t>(buffers_.size()); }
  Buffer& shard(int64_t i) { return buffers_[static_cast<size_t>(i)]; }
  const Buffer& shard(int64_t i) const { return buffers_[static_cast<size_t>(i)]; }
  Dims shard_offsets(int64_t i) const { return ShardOffsets(mesh(), type().shape, sharding(), i); }
  // The shards that together hold every element once, in mesh order.
  std::vector<int64_t> DistinctShards() const;

  // The whole tensor; blocks that several devices hold are read once. Waits for the program that
  // makes it.
  Result<HostTensor> ToHost() const;
  Status Wait() const;
  // True if any buffer is gone: donated, deleted, moved from.
  bool IsDeleted() const;
  void Delete();

 private:
  friend class Executable;
  ShardedArray(std::shared_ptr<const ArrayLayout> layout, std::vector<Buffer> buffers)
      : layout_(std::move(layout)), buffers_(std::move(buffers)) {}

  std::shared_ptr<const ArrayLayout> layout_;
  std::vector<Buffer> buffers_;
};

}  // namespace ulmus::pjrt
