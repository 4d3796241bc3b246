#include "pjrt/c_api.h"

#include <variant>

#include "base/check.h"
#include "pjrt/errors.h"

namespace ulmus::pjrt {

Status TakeError(const PJRT_Api* api, PJRT_Error* error) {
  if (error == nullptr) return {};
  auto message = MakeArgs<PJRT_Error_Message_Args>();
  message.error = error;
  api->PJRT_Error_Message(&message);
  auto code = MakeArgs<PJRT_Error_GetCode_Args>();
  code.error = error;
  // Failing to read a code is itself an error object; one unknown code is all a caller can use.
  PJRT_Error* second = api->PJRT_Error_GetCode(&code);
  Status status =
      MakeStatus(second == nullptr ? EnumAsInt(code.code) : static_cast<int>(StatusCode::kUnknown),
                 std::string_view(message.message, message.message_size));
  for (PJRT_Error* done : {error, second}) {
    if (done == nullptr) continue;
    auto destroy = MakeArgs<PJRT_Error_Destroy_Args>();
    destroy.error = done;
    api->PJRT_Error_Destroy(&destroy);
  }
  return status;
}

Status MissingFunction(const PJRT_Api* api, std::string_view signature) {
  constexpr std::string_view kPrefix = "PJRT_Api::";
  std::string_view name = "a function we need";
  if (const size_t at = signature.find(kPrefix); at != std::string_view::npos) {
    name = signature.substr(at + kPrefix.size());
    name = name.substr(0, name.find_first_of(";,]) "));
  }
  return UnimplementedError(
      "the plugin (PJRT API {}.{}, table of {} bytes) has no {}; install a newer plugin",
      api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version, api->struct_size,
      name);
}

void DestroyEvent(const PJRT_Api* api, PJRT_Event* event) {
  if (event == nullptr) return;
  auto destroy = MakeArgs<PJRT_Event_Destroy_Args>();
  destroy.event = event;
  (void)Call<&PJRT_Api::PJRT_Event_Destroy>(api, destroy);
}

Status AwaitEvent(const PJRT_Api* api, PJRT_Event* event) {
  if (event == nullptr) return {};
  auto await = MakeArgs<PJRT_Event_Await_Args>();
  await.event = event;
  Status status = Call<&PJRT_Api::PJRT_Event_Await>(api, await);
  DestroyEvent(api, event);
  return status;
}

const PJRT_Extension_Base* FindExtension(const PJRT_Api* api, int type) {
  for (const PJRT_Extension_Base* e = api->extension_start; e != nullptr; e = e->next) {
    // As a number: newer plugins list types that the enumeration of our header lacks.
    if (EnumAsInt(e->type) == type) return e;
  }
  return nullptr;
}

namespace {

struct TypePair {
  DType dtype;
  PJRT_Buffer_Type type;
};
constexpr TypePair kTypes[] = {
    {DType::kBool, PJRT_Buffer_Type_PRED}, {DType::kI8, PJRT_Buffer_Type_S8},
    {DType::kI16, PJRT_Buffer_Type_S16},   {DType::kI32, PJRT_Buffer_Type_S32},
    {DType::kI64, PJRT_Buffer_Type_S64},   {DType::kU8, PJRT_Buffer_Type_U8},
    {DType::kU16, PJRT_Buffer_Type_U16},   {DType::kU32, PJRT_Buffer_Type_U32},
    {DType::kU64, PJRT_Buffer_Type_U64},   {DType::kF16, PJRT_Buffer_Type_F16},
    {DType::kBF16, PJRT_Buffer_Type_BF16}, {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
};

}  // namespace

PJRT_Buffer_Type ToBufferType(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  CHECK(false, "{} has no PJRT type", Name(dtype));
  return PJRT_Buffer_Type_INVALID;
}

std::string BufferTypeName(int type) {
  for (const TypePair& pair : kTypes) {
    if (static_cast<int>(pair.type) == type) return std::string(Name(pair.dtype));
  }
  return fmt::format("PJRT type {}", type);
}

std::vector<PJRT_NamedValue> NamedValues(const std::map<std::string, OptionValue>& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, value] : options) {
    auto& v = values.emplace_back(MakeArgs<PJRT_NamedValue>());
    v.name = name.c_str();
    v.name_size = name.size();
    v.value_size = 1;
    if (const auto* b = std::get_if<bool>(&value)) {
      v.type = PJRT_NamedValue_kBool;
      v.bool_value = *b;
    } else if (const auto* i = std::get_if<int64_t>(&value)) {
      v.type = PJRT_NamedValue_kInt64;
      v.int64_value = *i;
    } else if (const auto* f = std::get_if<double>(&value)) {
      v.type = PJRT_NamedValue_kFloat;
      v.float_value = static_cast<float>(*f);
    } else {
      const auto& s = std::get<std::string>(value);
      v.type = PJRT_NamedValue_kString;
      v.string_value = s.c_str();
      v.value_size = s.size();
    }
  }
  return values;
}

}  // namespace ulmus::pjrt
