# add_module(NAME DEPS a b LIBS x y [PROTOS p.proto])
# One folder of src/: a static library from its .cc files, its tests and benchmarks, and a check that every
# header stands alone. DEPS are the project's modules it may include (tests/layers checks it); LIBS are
# third-party targets.
#   x_test.cc         -> <name>_test, label "unit": no plugin, under a second
#   x_plugin_test.cc  -> <name>_plugin_test, label "plugin": needs a CPU PJRT plugin
#   x_aot_test.cc     -> <name>_aot_test, label "aot": compiles ahead of time with libtpu or the CUDA plugin
#   x_bench.cc        -> <name>_bench
#   x_module.cc       -> none of these: a library that is loaded at run time, described in the folder's CMakeLists.txt
function(add_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;TEST_DEPS;PROTOS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS *.h)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(benches ${sources})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz|module)\\.cc$")

  set(lib ulmus_${name})
  add_library(${lib} STATIC ${sources})
  target_include_directories(${lib} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND ulmus_ OUTPUT_VARIABLE dep_libs)
  list(TRANSFORM ARG_TEST_DEPS PREPEND ulmus_ OUTPUT_VARIABLE test_dep_libs)
  target_link_libraries(${lib} PUBLIC ulmus_options ${dep_libs} ${ARG_LIBS})
  if(ARG_PROTOS)
    add_module_protos(${name} ${ARG_PROTOS})
  endif()

  # Headers stand alone: each is compiled as its own translation unit.
  if(headers)
    add_library(${lib}_headers OBJECT EXCLUDE_FROM_ALL)
    foreach(header ${headers})
      file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/src ${header})
      string(MAKE_C_IDENTIFIER ${relative} id)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${relative}\"\n")
      target_sources(${lib}_headers PRIVATE ${unit})
    endforeach()
    target_link_libraries(${lib}_headers PRIVATE ${lib} ${test_dep_libs} GTest::gtest)
    add_dependencies(check_headers ${lib}_headers)
  endif()

  foreach(kind aot plugin unit)
    set(files ${tests})
    if(kind STREQUAL "unit")
      list(FILTER files EXCLUDE REGEX "_(plugin|aot)_test\\.cc$")
      set(target ${name}_test)
    else()
      list(FILTER files INCLUDE REGEX "_${kind}_test\\.cc$")
      set(target ${name}_${kind}_test)
    endif()
    if(files)
      add_ulmus_test(${target} LABEL ${kind} SOURCES ${files} LIBS ${lib} ${test_dep_libs})
    endif()
  endforeach()

  if(benches)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE ${lib} ${test_dep_libs} benchmark::benchmark_main)
  endif()

  if(ULMUS_FUZZERS)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzz_name ${fuzzer} NAME_WE)
      add_executable(${fuzz_name} ${fuzzer})
      target_compile_options(${fuzz_name} PRIVATE -fsanitize=fuzzer)
      target_link_options(${fuzz_name} PRIVATE -fsanitize=fuzzer)
      target_link_libraries(${fuzz_name} PRIVATE ${lib})
    endforeach()
  endif()
endfunction()

# A GoogleTest executable whose cases appear one by one in ctest under LABEL.
function(add_ulmus_test target)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBS" ${ARGN})
  if(ARG_LABEL STREQUAL "plugin")
    list(APPEND ARG_SOURCES ${CMAKE_SOURCE_DIR}/tests/release_clients.cc)
    list(APPEND ARG_LIBS ulmus_pjrt)
  endif()
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ulmus_options ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  set(timeout 60)
  if(NOT ARG_LABEL STREQUAL "unit")
    set(timeout 600)
  endif()
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${timeout}
    ENVIRONMENT "ULMUS_SOURCE_DIR=${CMAKE_SOURCE_DIR};ULMUS_DEPS_DIR=${ULMUS_DEPS_DIR}")
endfunction()

# Generates C++ from .proto files of a module into a library of its own: generated code is not held to our warnings.
function(add_module_protos name)
  set(target ulmus_${name}_proto)
  add_library(${target} STATIC)
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
  set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "")
  set(out ${CMAKE_CURRENT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  protobuf_generate(TARGET ${target} LANGUAGE cpp PROTOS ${ARGN} PROTOC_OUT_DIR ${out}
    IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PUBLIC ${out})
  target_link_libraries(ulmus_${name} PUBLIC ${target})
endfunction()

add_custom_target(check_headers)

# What `make build` builds: every executable of apps/ and examples/, left at the top of the build tree. Collected once
# all folders have been read.
add_custom_target(programs)
function(collect_programs)
  get_all_targets(${CMAKE_SOURCE_DIR} targets)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(folder ${target} SOURCE_DIR)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
    if(type STREQUAL "EXECUTABLE" AND folder MATCHES "^(src/)?(apps|examples)(/|$)" AND NOT target MATCHES "_(test|bench|fuzz)$")
      add_dependencies(programs ${target})
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    endif()
  endforeach()
endfunction()

function(get_all_targets folder out)
  get_property(found DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    get_all_targets(${subfolder} more)
    list(APPEND found ${more})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL collect_programs)
