#include "pjrt/array.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "pjrt/c_api.h"
#include "pjrt/client.h"

namespace ulmus::pjrt {
namespace {

struct Kept {
  const PJRT_Api* api;
  std::shared_ptr<const void> keeper;
};

// Releases `keeper` when `event` fires. Takes over the event. Nothing waits here: a zero-copy
// buffer's event fires only when the buffer dies, so waiting for it while the buffer lives would
// last for ever.
Status KeepUntil(const PJRT_Api* api, PJRT_Event* event, std::shared_ptr<const void> keeper) {
  if (event == nullptr) return {};
  auto args = MakeArgs<PJRT_Event_OnReady_Args>();
  args.event = event;
  args.user_arg = new Kept{api, std::move(keeper)};
  args.callback = [](PJRT_Error* error, void* user) {
    const std::unique_ptr<Kept> kept(static_cast<Kept*>(user));
    (void)TakeError(kept->api, error);  // the reader of the buffer gets the same error
  };
  Status status = Call<&PJRT_Api::PJRT_Event_OnReady>(api, args);
  if (!status.ok()) delete static_cast<Kept*>(args.user_arg);
  DestroyEvent(api, event);
  return status;
}

struct Upload {
  PJRT_Buffer* buffer;
  PJRT_Event* done;
};

Result<Upload> StartUpload(Client& client, const TensorType& type, std::span<const std::byte> bytes,
                           int64_t device, PJRT_HostBufferSemantics semantics) {
  if (static_cast<int64_t>(bytes.size()) != type.size_bytes()) {
    return InvalidArgumentError("upload of {}: found {} bytes, expected {}", type.ToString(),
                                bytes.size(), type.size_bytes());
  }
  CHECK(device >= 0 && device < client.num_devices(), "device {} of {}", device,
        client.num_devices());
  auto args = MakeArgs<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = client.handle();
  args.data = bytes.data();
  args.type = ToBufferType(type.dtype);
  args.dims = type.shape.dims().data();
  args.num_dims = type.shape.dims().size();
  args.host_buffer_semantics = semantics;
  args.device = client.device_handle(device);
  TRY(Call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(client.api(), args));
  return Upload{args.buffer, args.done_with_host_buffer};
}

// If the block lies in `whole` without gaps, its first byte; else null.
const std::byte* ContiguousBlock(const HostTensor& whole, const Dims& offsets, const Shape& block) {
  const Dims& dims = whole.shape().dims();
  const Dims strides = whole.shape().Strides();
  int64_t start = 0;
  bool cut = false;  // an axis inside has been cut, so any axis outside must have size 1
  for (size_t d = dims.size(); d-- > 0;) {
    start += offsets[d] * strides[d];
    if (cut && block.dims()[d] != 1) return nullptr;
    cut = cut || block.dims()[d] != dims[d];
  }
  return whole.bytes().data() + start * SizeBytes(whole.dtype());
}

}  // namespace

Buffer::Buffer(const PJRT_Api* api, PJRT_Buffer* handle, std::shared_ptr<const TensorType> type,
               int64_t device)
    : api_(api), handle_(handle), type_(std::move(type)), device_(device) {}

Buffer::Buffer(Buffer&& other) noexcept
    : api_(other.api_),
      handle_(std::exchange(other.handle_, nullptr)),
      type_(std::move(other.type_)),
      device_(other.device_),
      views_host_memory_(other.views_host_memory_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  api_ = other.api_;
  handle_ = std::exchange(other.handle_, nullptr);
  type_ = std::move(other.type_);
  device_ = other.device_;
  views_host_memory_ = other.views_host_memory_;
  return *this;
}

void Buffer::Reset() {
  if (handle_ == nullptr) return;
  auto args = MakeArgs<PJRT_Buffer_Destroy_Args>();
  args.buffer = std::exchange(handle_, nullptr);
  (void)Call<&PJRT_Api::PJRT_Buffer_Destroy>(api_, args);
}

Result<Buffer> Buffer::FromHost(Client& client, std::shared_ptr<const TensorType> type,
                                std::span<const std::byte> bytes, int64_t device) {
  const Upload upload = TRY(
      StartUpload(client, *type, bytes, device, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall));
  Buffer buffer(client.api(), upload.buffer, std::move(type), device);
  TRY(AwaitEvent(client.api(), upload.done));
  return buffer;
}

Result<Buffer> Buffer::FromHostZeroCopy(Client& client, std::shared_ptr<const TensorType> type,
                                        std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> keeper, int64_t device) {
  const Upload upload =
      TRY(StartUpload(client, *type, bytes, device, PJRT_HostBufferSemantics_kImmutableZeroCopy));
  Buffer buffer(client.api(), upload.buffer, std::move(type), device);
  TRY(KeepUntil(client.api(), upload.done, std::move(keeper)));
  const Result<void*> address = buffer.UnsafePointer();
  buffer.views_host_memory_ = address.ok() && *address == bytes.data();
  return buffer;
}

bool Buffer::IsDeleted() const {
  if (handle_ == nullptr) return true;
  auto args = MakeArgs<PJRT_Buffer_IsDeleted_Args>();
  args.buffer = handle_;
  return !Call<&PJRT_Api::PJRT_Buffer_IsDeleted>(api_, args).ok() || args.is_deleted;
}

namespace {

Status DeletedError(const char* what) {
  return FailedPreconditionError(
      "{}: the buffer is deleted: it was donated to a program, deleted or moved from", what);
}

}  // namespace

Status Buffer::Wait() const {
  if (handle_ == nullptr) return DeletedError("Wait");
  auto args = MakeArgs<PJRT_Buffer_ReadyEvent_Args>();
  args.buffer = handle_;
  TRY(Call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(api_, args));
  return AwaitEvent(api_, args.event);
}

Result<PJRT_Event*> Buffer::StartToHost(std::span<std::byte> target) const {
  if (handle_ == nullptr) return DeletedError("ToHost");
  if (static_cast<int64_t>(target.size()) != type_->size_bytes()) {
    return InvalidArgumentError("ToHost of {}: the target has {} bytes, expected {}",
                                type_->ToString(), target.size(), type_->size_bytes());
  }
  // Without an explicit layout the device's own, perhaps transposed, comes back.
  const size_t rank = type_->shape.dims().size();
  std::vector<int64_t> minor_to_major(rank);
  for (size_t i = 0; i < rank; ++i) minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  auto layout = MakeArgs<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled = MakeArgs<PJRT_Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = rank;
  auto args = MakeArgs<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = handle_;
  args.host_layout = &layout;
  args.dst = target.data();
  args.dst_size = target.size();
  TRY(Call<&PJRT_Api::PJRT_Buffer_ToHostBuffer>(api_, args));
  return args.event;
}

Status Buffer::ToHost(std::span<std::byte> target) const {
  return AwaitEvent(api_, TRY(StartToHost(target)));
}

Status Buffer::CopyRawToHost(int64_t offset, std::span<std::byte> target) const {
  if (handle_ == nullptr) return DeletedError("CopyRawToHost");
  const int64_t size = type_->size_bytes();
  const auto count = static_cast<int64_t>(target.size());
  if (offset < 0 || offset > size || count > size - offset) {
    return OutOfRangeError("CopyRawToHost of {}: bytes [{}, {}) reach beyond its {}",
                           type_->ToString(), offset, offset + count, size);
  }
  if (count == 0) return {};
  auto args = MakeArgs<PJRT_Buffer_CopyRawToHost_Args>();
  args.buffer = handle_;
  args.dst = target.data();
  args.offset = offset;
  args.transfer_size = count;
  TRY(Call<&PJRT_Api::PJRT_Buffer_CopyRawToHost>(api_, args));
  return AwaitEvent(api_, args.event);
}

Result<Buffer> Buffer::CopyToDevice(Client& client, int64_t device) const {
  if (handle_ == nullptr) return DeletedError("CopyToDevice");
  CHECK(device >= 0 && device < client.num_devices(), "device {} of {}", device,
        client.num_devices());
  auto args = MakeArgs<PJRT_Buffer_CopyToDevice_Args>();
  args.buffer = handle_;
  args.dst_device = client.device_handle(device);
  TRY(Call<&PJRT_Api::PJRT_Buffer_CopyToDevice>(api_, args));
  return Buffer(api_, args.dst_buffer, type_, device);
}

Result<void*> Buffer::UnsafePointer() const {
  if (handle_ == nullptr) return DeletedError("UnsafePointer");
  auto args = MakeArgs<PJRT_Buffer_UnsafePointer_Args>();
  args.buffer = handle_;
  TRY(Call<&PJRT_Api::PJRT_Buffer_UnsafePointer>(api_, args));
  return reinterpret_cast<void*>(args.buffer_pointer);
}

ChunkedUpload::ChunkedUpload(ChunkedUpload&& other) noexcept
    : api_(other.api_),
      manager_(std::exchange(other.manager_, nullptr)),
      buffer_(std::move(other.buffer_)),
      taken_(other.taken_),
      size_bytes_(other.size_bytes_),
      written_bytes_(other.written_bytes_) {}

ChunkedUpload& ChunkedUpload::operator=(ChunkedUpload&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  api_ = other.api_;
  manager_ = std::exchange(other.manager_, nullptr);
  buffer_ = std::move(other.buffer_);
  taken_ = other.taken_;
  size_bytes_ = other.size_bytes_;
  written_bytes_ = other.written_bytes_;
  return *this;
}

void ChunkedUpload::Reset() {
  if (manager_ == nullptr) return;
  if (!Complete()) {
    constexpr std::string_view kMessage =
        "the upload of this buffer was abandoned before all bytes were written";
    auto fail = MakeArgs<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
    fail.transfer_manager = manager_;
    fail.error_code = PJRT_Error_Code_ABORTED;
    fail.error_message = kMessage.data();
    fail.error_message_size = kMessage.size();
    (void)Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_SetBufferError>(api_, fail);
  }
  auto args = MakeArgs<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
  args.transfer_manager = std::exchange(manager_, nullptr);
  (void)Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_Destroy>(api_, args);
}

Result<ChunkedUpload> ChunkedUpload::Start(Client& client, TensorType type, int64_t device) {
  CHECK(device >= 0 && device < client.num_devices(), "device {} of {}", device,
        client.num_devices());
  const PJRT_Api* api = client.api();
  auto memory = MakeArgs<PJRT_Device_DefaultMemory_Args>();
  memory.device = client.device_handle(device);
  TRY(Call<&PJRT_Api::PJRT_Device_DefaultMemory>(api, memory));
  auto spec = MakeArgs<PJRT_ShapeSpec>();
  spec.dims = type.shape.dims().data();
  spec.num_dims = type.shape.dims().size();
  spec.element_type = ToBufferType(type.dtype);
  auto args = MakeArgs<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
  args.client = client.handle();
  args.shape_specs = &spec;
  args.num_shape_specs = 1;
  args.memory = memory.memory;
  TRY(Call<&PJRT_Api::PJRT_Client_CreateBuffersForAsyncHostToDevice>(api, args));
  ChunkedUpload upload;
  upload.api_ = api;
  upload.manager_ = args.transfer_manager;
  upload.size_bytes_ = type.size_bytes();
  auto retrieve = MakeArgs<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
  retrieve.transfer_manager = args.transfer_manager;
  TRY(Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer>(api, retrieve));
  upload.buffer_ =
      Buffer(api, retrieve.buffer_out, std::make_shared<const TensorType>(std::move(type)), device);
  return upload;
}

Result<Buffer> ChunkedUpload::TakeBuffer() {
  if (std::exchange(taken_, true))
    return FailedPreconditionError("the buffer of this upload was taken already");
  return std::move(buffer_);
}

Status ChunkedUpload::Write(int64_t offset, std::span<const std::byte> chunk,
                            std::shared_ptr<const void> keeper) {
  const auto count = static_cast<int64_t>(chunk.size());
  if (offset < 0 || offset > size_bytes_ || count > size_bytes_ - offset) {
    return OutOfRangeError("chunk of {} bytes at offset {} reaches beyond the buffer's {} bytes",
                           count, offset, size_bytes_);
  }
  if (written_bytes_ + count > size_bytes_) {
    return OutOfRangeError(
        "chunk of {} bytes at offset {}: {} of {} bytes were written before, so ranges overlap",
        count, offset, written_bytes_, size_bytes_);
  }
  auto args = MakeArgs<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
  args.transfer_manager = manager_;
  args.data = chunk.data();
  args.offset = offset;
  args.transfer_size = count;
  args.is_last_transfer = written_bytes_ + count == size_bytes_;
  TRY(Call<&PJRT_Api::PJRT_AsyncHostToDeviceTransferManager_TransferData>(api_, args));
  written_bytes_ += count;
  return KeepUntil(api_, args.done_with_h2d_transfer, std::move(keeper));
}

Result<std::shared_ptr<const ArrayLayout>> ArrayLayout::Create(TensorType type, Mesh mesh,
                                                               Sharding sharding,
                                                               std::vector<int64_t> devices) {
  TRY(ValidateSharding(mesh, type.shape, sharding));
  const int64_t count = mesh.num_devices();
  if (devices.empty()) {
    for (int64_t i = 0; i < count; ++i) devices.push_back(i);
  }
  if (static_cast<int64_t>(devices.size()) != count) {
    return InvalidArgumentError("{} devices were given for the mesh ({}), which has {}",
                                devices.size(), mesh.ToString(), count);
  }
  auto layout = std::make_shared<ArrayLayout>();
  layout->local = std::make_shared<const TensorType>(
      TensorType{type.dtype, LocalShape(mesh, type.shape, sharding)});
  layout->type = std::move(type);
  layout->mesh = std::move(mesh);
  layout->sharding = std::move(sharding);
  layout->devices = std::move(devices);
  return std::shared_ptr<const ArrayLayout>(std::move(layout));
}

bool ArrayLayout::Equivalent(const ArrayLayout& other) const {
  if (this == &other) return true;
  if (type != other.type || devices != other.devices || *local != *other.local) return false;
  if (mesh == other.mesh && sharding == other.sharding) return true;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto position = static_cast<int64_t>(i);
    if (ShardOffsets(mesh, type.shape, sharding, position) !=
        ShardOffsets(other.mesh, other.type.shape, other.sharding, position)) {
      return false;
    }
  }
  return true;
}

std::string ArrayLayout::ToString() const {
  return fmt::format("{} as {} on ({})", type.ToString(), sharding.ToString(), mesh.ToString());
}

Result<ShardedArray> ShardedArray::FromBuffers(std::shared_ptr<const ArrayLayout> layout,
                                               std::vector<Buffer> buffers) {
  if (buffers.size() != layout->devices.size()) {
    return InvalidArgumentError("{} buffers for {}, expected {}", buffers.size(),
                                layout->ToString(), layout->devices.size());
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].handle() == nullptr) return DeletedError("FromBuffers");
    if (buffers[i].type() != *layout->local || buffers[i].device() != layout->devices[i]) {
      return InvalidArgumentError("buffer {} of {} is {} on device {}, expected {} on device {}", i,
                                  layout->ToString(), buffers[i].type().ToString(),
                                  buffers[i].device(), layout->local->ToString(),
                                  layout->devices[i]);
    }
  }
  return ShardedArray(std::move(layout), std::move(buffers));
}

Result<ShardedArray> ShardedArray::FromHost(Client& client, const HostTensor& tensor,
                                            const Mesh& mesh, const Sharding& sharding) {
  return FromHost(client, tensor, TRY(ArrayLayout::Create(tensor.type(), mesh, sharding)));
}

Result<ShardedArray> ShardedArray::FromHost(Client& client, const HostTensor& tensor,
                                            std::shared_ptr<const ArrayLayout> layout) {
  if (tensor.type() != layout->type) {
    return InvalidArgumentError("found host tensor {}, expected {}", tensor.type().ToString(),
                                layout->type.ToString());
  }
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < layout->devices.size(); ++i) {
    const Dims offsets =
        ShardOffsets(layout->mesh, layout->type.shape, layout->sharding, static_cast<int64_t>(i));
    const Shape& shape = layout->local->shape;
    if (layout->devices[i] < 0 || layout->devices[i] >= client.num_devices()) {
      return FailedPreconditionError("{} needs device {}, the client has {}", layout->ToString(),
                                     layout->devices[i], client.num_devices());
    }
    if (const std::byte* block = ContiguousBlock(tensor, offsets, shape)) {
      const std::span bytes(block, static_cast<size_t>(layout->local->size_bytes()));
      buffers.push_back(TRY(Buffer::FromHost(client, layout->local, bytes, layout->devices[i])));
    } else {
      const HostTensor copy = CopyBlock(tensor, offsets, shape);
      buffers.push_back(
          TRY(Buffer::FromHost(client, layout->local, copy.bytes(), layout->devices[i])));
    }
  }
  return ShardedArray(std::move(layout), std::move(buffers));
}

Result<ShardedArray> ShardedArray::FromBlocks(Client& client,
                                              std::shared_ptr<const ArrayLayout> layout,
                                              const BlockFn& block) {
  // Positions by block, so that a replicated block is fetched once and its memory is freed before
  // the next.
  std::map<Dims, std::vector<size_t>> positions;
  for (size_t i = 0; i < layout->devices.size(); ++i) {
    positions[ShardOffsets(layout->mesh, layout->type.shape, layout->sharding,
                           static_cast<int64_t>(i))]
        .push_back(i);
  }
  std::vector<Buffer> buffers(layout->devices.size());
  for (const auto& [offsets, holders] : positions) {
    const HostTensor bytes = TRY(block(offsets, layout->local->shape));
    if (bytes.type() != *layout->local) {
      return InvalidArgumentError("block of {}: found {}, expected {}", layout->ToString(),
                                  bytes.type().ToString(), layout->local->ToString());
    }
    for (const size_t i : holders)
      buffers[i] = TRY(Buffer::FromHost(client, layout->local, bytes.bytes(), layout->devices[i]));
  }
  return ShardedArray(std::move(layout), std::move(buffers));
}

std::vector<int64_t> ShardedArray::DistinctShards() const {
  std::vector<int64_t> distinct;
  std::vector<Dims> seen;
  for (int64_t i = 0; i < num_shards(); ++i) {
    Dims offsets = shard_offsets(i);
    if (std::ranges::find(seen, offsets) != seen.end()) continue;
    seen.push_back(std::move(offsets));
    distinct.push_back(i);
  }
  return distinct;
}

Result<HostTensor> ShardedArray::ToHost() const {
  CHECK(layout_ != nullptr, "ToHost of an empty array");
  HostTensor whole(type());
  const std::vector<int64_t> distinct = DistinctShards();
  if (distinct.size() == 1) {
    TRY(shard(0).ToHost(whole.bytes()));
    return whole;
  }
  // All copies are started before the first is awaited. After an error the rest must still finish:
  // they write to `blocks`.
  std::vector<HostTensor> blocks;
  std::vector<PJRT_Event*> events;
  Status first;
  for (const int64_t i : distinct) {
    Result<PJRT_Event*> event = shard(i).StartToHost(blocks.emplace_back(local_type()).bytes());
    if (!event.ok()) {
      first = event.error();
      break;
    }
    events.push_back(*event);
  }
  for (PJRT_Event* event : events) {
    const Status status = AwaitEvent(buffers_.front().api_, event);
    if (first.ok()) first = status;
  }
  TRY(Status(first));
  for (size_t k = 0; k < distinct.size(); ++k)
    PasteBlock(blocks[k], shard_offsets(distinct[k]), whole);
  return whole;
}

Status ShardedArray::Wait() const {
  for (const Buffer& buffer : buffers_) TRY(buffer.Wait());
  return {};
}

bool ShardedArray::IsDeleted() const {
  return buffers_.empty() ||
         std::ranges::any_of(buffers_, [](const Buffer& b) { return b.IsDeleted(); });
}

void ShardedArray::Delete() {
  for (Buffer& buffer : buffers_) buffer.Delete();
}

}  // namespace ulmus::pjrt
