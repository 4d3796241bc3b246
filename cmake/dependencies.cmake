# Everything the project links against, one line of reason each. Debian packages and pinned wheels are
# installed by tools/setup; versions and checksums of the wheels are in tools/wheels.txt.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)            # std::format is missing in g++ 12
find_package(tl-expected REQUIRED)    # std::expected is C++23
find_package(nlohmann_json REQUIRED)  # --json output, JSON files
find_package(Protobuf REQUIRED)       # compile options, HLO, TensorBoard events
find_package(CLI11 REQUIRED)          # subcommands and --help
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
include(GoogleTest)

# Recipes: strict TOML with the position of every value.
find_package(tomlplusplus REQUIRED)
# Checksums: xxh3 for speed, sha256 (OpenSSL) where a published digest must match.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(ulmus_xxhash INTERFACE)
target_link_libraries(ulmus_xxhash INTERFACE ${XXHASH_LIBRARY})
# Gzip: document sidecars of token files.
find_package(ZLIB REQUIRED)
# Zstandard: checkpoint chunks (zarr's codec `zstd`), packed inputs of `tokenize`.
find_library(ZSTD_LIBRARY zstd REQUIRED)
add_library(ulmus_zstd INTERFACE)
target_link_libraries(ulmus_zstd INTERFACE ${ZSTD_LIBRARY})
# SIMD with run-time dispatch for the CPU kernels (AVX2 on some machines, AVX-512 on others).
find_library(HWY_LIBRARY hwy REQUIRED)
add_library(ulmus_hwy INTERFACE)
target_link_libraries(ulmus_hwy INTERFACE ${HWY_LIBRARY})

# The tokenizer's pre-split pattern: Unicode properties and look-ahead, compiled to machine code.
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(ulmus_pcre2 INTERFACE)
target_link_libraries(ulmus_pcre2 INTERFACE ${PCRE2_LIBRARY})

# PJRT C API header (wheel xla-cpu-pjrt). Used in src/pjrt only.
set(PJRT_INCLUDE_DIR ${ULMUS_DEPS_DIR}/wheels/xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt/include)
# XLA FFI headers (wheel jaxlib). Used in src/kernels only; not warning-clean, hence SYSTEM.
set(XLA_FFI_INCLUDE_DIR ${ULMUS_DEPS_DIR}/wheels/jaxlib/jaxlib/include)
# Arrow C++ (wheel pyarrow): Parquet. Used in one module that src/data opens on demand; see its CMakeLists.txt.
set(ARROW_DIR ${ULMUS_DEPS_DIR}/wheels/pyarrow/pyarrow)
foreach(header ${PJRT_INCLUDE_DIR}/pjrt_c_api.h ${XLA_FFI_INCLUDE_DIR}/xla/ffi/api/ffi.h
    ${ARROW_DIR}/include/parquet/column_reader.h)
  if(NOT EXISTS ${header})
    message(FATAL_ERROR "${header} is missing. Run `make setup`, which fetches and unpacks the pinned wheels.")
  endif()
endforeach()
add_library(ulmus_pjrt_header INTERFACE)
target_include_directories(ulmus_pjrt_header SYSTEM INTERFACE ${PJRT_INCLUDE_DIR})
add_library(ulmus_ffi_header INTERFACE)
target_include_directories(ulmus_ffi_header SYSTEM INTERFACE ${XLA_FFI_INCLUDE_DIR})
file(GLOB ARROW_LIBRARIES ${ARROW_DIR}/libparquet.so.* ${ARROW_DIR}/libarrow.so.*)
add_library(ulmus_arrow INTERFACE)
target_include_directories(ulmus_arrow SYSTEM INTERFACE ${ARROW_DIR}/include)
target_link_libraries(ulmus_arrow INTERFACE ${ARROW_LIBRARIES})
# Where programs and tests find that module: beside them, also when both were copied elsewhere, or in the build tree.
list(APPEND CMAKE_BUILD_RPATH "$ORIGIN" ${CMAKE_BINARY_DIR})
