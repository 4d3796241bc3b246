// A compilable program as plain data: what `graph` hands down and `pjrt` takes, so that neither
// knows the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/mesh.h"
#include "tensor/shape.h"

namespace ulmus {

// One argument or result of a program. Types are global; a device holds LocalShape(mesh,
// type.shape, sharding).
struct ProgramValue {
  std::string name;
  TensorType type;
  Sharding sharding;        // replicated unless said otherwise; same rank as the type
  int64_t donated_to = -1;  // arguments only: index of the result that takes over the buffer, or -1
};

struct Program {
  std::string name;  // module name, for logs
  std::string text;  // StableHLO
  Mesh mesh;         // partitions of the program, in mesh order
  std::vector<ProgramValue> arguments;
  std::vector<ProgramValue> results;
  std::vector<std::string>
      custom_calls;  // FFI targets the text calls, sorted: must be registered before compiling
};

// A host function that programs may call by target name (an XLA_FFI_Handler*, opaque here).
// `version` enters the key of cached executables: raise it whenever the handler's numbers or
// attributes change.
struct CustomCallHandler {
  std::string target;
  void* handler = nullptr;
  int64_t version = 1;
};

}  // namespace ulmus
