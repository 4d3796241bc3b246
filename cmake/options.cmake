# Language level, warnings and sanitizers that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # -O3 gains nothing here: the heavy loops are XLA's

set(ULMUS_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them (address,undefined or thread)")
option(ULMUS_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
set(ULMUS_DEPS_DIR ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "Where tools/setup unpacked the pinned wheels")

add_library(ulmus_options INTERFACE)
target_compile_options(ulmus_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
  # g++ 12 raises these from its own string and vector code at -O2; they have never pointed at a fault here.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-free-nonheap-object -Wno-array-bounds>
  # Source paths in messages and StableHLO locations are relative to the repository.
  -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(ULMUS_SANITIZE)
  target_compile_options(ulmus_options INTERFACE -fsanitize=${ULMUS_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(ulmus_options INTERFACE -fsanitize=${ULMUS_SANITIZE})
endif()

if(ULMUS_FUZZERS)  # what is fuzzed tells the fuzzer which of its branches were taken
  target_compile_options(ulmus_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
