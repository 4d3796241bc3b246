// What the XLA FFI handlers of this module share: reporting a version that every plugin takes,
// errors, threads.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "kernels/parallel.h"
#include "tensor/shape.h"
#include "xla/ffi/api/ffi.h"

namespace ulmus::kernels {

namespace ffi = xla::ffi;

// `kHandler` as a plugin may call it. A plugin silently drops a handler that reports a newer FFI
// minor version than its own (2 for the oldest we support), so this reports 1: buffers, attributes
// and the thread pool are all there since. An exception becomes an error here, because past the C
// boundary it would end the process.
template <XLA_FFI_Handler* kHandler>
XLA_FFI_Error* Portable(XLA_FFI_CallFrame* frame) noexcept {
  std::string what;
  try {
    XLA_FFI_Error* error = kHandler(frame);
    for (XLA_FFI_Extension_Base* e = frame->extension_start; e != nullptr; e = e->next) {
      if (e->type != XLA_FFI_Extension_Metadata) continue;
      reinterpret_cast<XLA_FFI_Metadata_Extension*>(e)->metadata->api_version.minor_version = 1;
    }
    return error;
  } catch (const std::bad_alloc&) {
    what = "out of memory";  // short enough to need none
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
    what = "unknown error";
  }
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = what.c_str();
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return frame->api->XLA_FFI_Error_Create(&args);
}

// As CustomCallHandler::handler wants it.
template <XLA_FFI_Handler* kHandler>
void* PortableHandler() {
  return reinterpret_cast<void*>(&Portable<kHandler>);
}

// The codes have the same numbers.
inline ffi::Error ToFfiError(const Status& status) {
  if (status.ok()) return ffi::Error::Success();
  return ffi::Error(static_cast<ffi::ErrorCode>(status.code()), status.message());
}

// XLA's intra-op threads, shared with everything else the program runs.
class PoolWorkers final : public Workers {
 public:
  explicit PoolWorkers(ffi::ThreadPool pool) : pool_(std::move(pool)) {}
  int64_t num_threads() const override { return pool_.num_threads(); }
  void Schedule(std::function<void()> task) noexcept override { pool_.Schedule(std::move(task)); }

 private:
  ffi::ThreadPool pool_;
};

// None for types the project has no name for (complex numbers, float8, ...).
std::optional<DType> DTypeOf(ffi::DataType type);
Shape ShapeOf(const ffi::AnyBuffer& buffer);
// "bf16[4,64]", for messages.
std::string TypeText(const ffi::AnyBuffer& buffer);

}  // namespace ulmus::kernels
