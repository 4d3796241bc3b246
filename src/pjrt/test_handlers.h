// Custom-call handlers for this module's tests, written against the C layout of XLA FFI 0.1: the
// FFI header belongs to src/kernels. Only what the tests touch is spelled out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ulmus::pjrt::ffi_layout {

struct ExtensionBase {
  size_t struct_size;
  int type;  // 1: the plugin asks for metadata instead of a call
  ExtensionBase* next;
};
struct ApiVersion {
  size_t struct_size;
  ExtensionBase* extension_start;
  int major_version, minor_version;
};
struct Metadata {
  size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};
struct MetadataExtension {
  ExtensionBase base;
  Metadata* metadata;
};
struct ErrorCreateArgs {
  size_t struct_size;
  ExtensionBase* extension_start;
  const char* message;
  int code;
};
struct Api {
  size_t struct_size;
  ExtensionBase* extension_start;
  ApiVersion api_version;
  const void* internal_api;
  void* (*error_create)(ErrorCreateArgs*);
};
struct Values {
  size_t struct_size;
  ExtensionBase* extension_start;
  int64_t size;
  int* types;
  void** values;
};
struct CallFrame {
  size_t struct_size;
  ExtensionBase* extension_start;
  const Api* api;
  void* context;
  int stage;
  Values args, results;
};
struct BufferArg {
  size_t struct_size;
  ExtensionBase* extension_start;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

// True if the call only asks for metadata, which is then answered.
inline bool AnswersMetadata(CallFrame* frame) noexcept {
  if (frame->extension_start == nullptr || frame->extension_start->type != 1) return false;
  Metadata* metadata = reinterpret_cast<MetadataExtension*>(frame->extension_start)->metadata;
  metadata->api_version.major_version = 0;
  metadata->api_version.minor_version = 1;
  metadata->traits = 0;
  return true;
}

// y = x + 1 over f32.
inline void* AddOne(CallFrame* frame) noexcept {
  if (AnswersMetadata(frame)) return nullptr;
  const auto* x = static_cast<const BufferArg*>(frame->args.values[0]);
  const auto* y = static_cast<const BufferArg*>(frame->results.values[0]);
  int64_t count = 1;
  for (int64_t d = 0; d < x->rank; ++d) count *= x->dims[d];
  for (int64_t i = 0; i < count; ++i)
    static_cast<float*>(y->data)[i] = static_cast<const float*>(x->data)[i] + 1.0f;
  return nullptr;
}

inline void* Fail(CallFrame* frame) noexcept {
  if (AnswersMetadata(frame)) return nullptr;
  ErrorCreateArgs args{sizeof(ErrorCreateArgs), nullptr, "the handler said no", 8};
  return frame->api->error_create(&args);
}

// AddOne that first waits until the gate is open, and counts the calls that came this far.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::atomic<int> arrived = 0;

  void Set(bool value) {
    const std::lock_guard lock(mutex);
    open = value;
    changed.notify_all();
  }
};
inline Gate& TheGate() {
  static Gate& gate = *new Gate;
  return gate;
}
inline void* WaitAtGate(CallFrame* frame) noexcept {
  if (AnswersMetadata(frame)) return nullptr;
  Gate& gate = TheGate();
  ++gate.arrived;
  std::unique_lock lock(gate.mutex);
  gate.changed.wait(lock, [&] { return gate.open; });
  lock.unlock();
  return AddOne(frame);
}

}  // namespace ulmus::pjrt::ffi_layout
