// How this module calls the PJRT C API. For its .cc files only: everybody else sees the classes
// around it.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pjrt/compile_options.h"  // OptionValue
#include "tensor/dtype.h"

namespace ulmus::pjrt {

// A zeroed argument struct of the size our header knows. Newer plugins never write past
// struct_size.
template <class Args>
Args MakeArgs() {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  return args;
}

// The number in an enumeration that a plugin wrote: it may be newer than our header's list, so not
// a value of it.
template <class Enum>
int EnumAsInt(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// Takes and destroys `error`; null is ok. The message is cleaned (errors.h).
Status TakeError(const PJRT_Api* api, PJRT_Error* error);

// True when the plugin's table is long enough to hold the function: plugins older than our header
// have a shorter one.
template <class Member>
bool Has(const PJRT_Api* api, Member PJRT_Api::* function) {
  const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(&(api->*function)) -
                                          reinterpret_cast<const char*>(api));
  return offset + sizeof(void*) <= api->struct_size && api->*function != nullptr;
}

// kUnimplemented: "the plugin (PJRT API 0.40) has no PJRT_X; ...". `signature` is the caller's
// __PRETTY_FUNCTION__.
Status MissingFunction(const PJRT_Api* api, std::string_view signature);

// Call<&PJRT_Api::PJRT_Client_Create>(api, args): checks that the plugin has the function, calls
// it, converts the error.
template <auto Function, class Args>
Status Call(const PJRT_Api* api, Args& args) {
  if (!Has(api, Function)) [[unlikely]]
    return MissingFunction(api, __PRETTY_FUNCTION__);
  PJRT_Error* error = (api->*Function)(&args);
  if (error == nullptr) [[likely]]
    return {};
  return TakeError(api, error);
}

// Waits for `event`, destroys it and returns its error. Null is ok.
Status AwaitEvent(const PJRT_Api* api, PJRT_Event* event);
void DestroyEvent(const PJRT_Api* api, PJRT_Event* event);

// Finds an extension by type, or null. The list may hold types newer than our header.
const PJRT_Extension_Base* FindExtension(const PJRT_Api* api, int type);

PJRT_Buffer_Type ToBufferType(DType dtype);
// "f32"; "PJRT type 17" for one that we have no name for.
std::string BufferTypeName(int type);

// Views into `options`, which must outlive the result.
std::vector<PJRT_NamedValue> NamedValues(const std::map<std::string, OptionValue>& options);

// The extension that registers FFI handlers. Its header is not shipped: this is the layout that
// plugins of PJRT API 0.81 to 0.117 check for (52 significant bytes; no api_version field, which
// older headers had).
inline constexpr int kFfiExtensionType = 5;
struct FfiRegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_id_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(FfiRegisterHandlerArgs* args);
};

}  // namespace ulmus::pjrt
