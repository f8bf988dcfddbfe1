# Language, warnings, sanitizers, and lagoon_library(): one folder of src/ is one library, and the
# libraries it names under DEPENDS are the only folders it may include (tools/check_includes.py).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "Lagoon needs GCC 12 or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}.")
endif()

find_program(LAGOON_CCACHE ccache)
if(LAGOON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Object files of two checkouts, and of two presets with the same options, are one in the cache. It
  # takes files that use precompiled headers too (the tests) if told that macros of time are not used.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros "${LAGOON_CCACHE}")
endif()

# find_package() with a sentence that says what to do where it fails.
macro(lagoon_find_package package group)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    string(JOIN " " lagoon_wanted ${package} ${ARGN})
    message(FATAL_ERROR "${lagoon_wanted} was not found: run scripts/deps.sh ${group}, or install what "
                        "scripts/packages.txt lists.")
  endif()
endmacro()

find_package(Threads REQUIRED)
lagoon_find_package(fmt build)
lagoon_find_package(simdjson build)
lagoon_find_package(nlohmann_json build)
lagoon_find_package(Boost build 1.81)
lagoon_find_package(CLI11 build)
if(LAGOON_TESTS)
  enable_testing()
  lagoon_find_package(GTest test)
endif()

add_library(lagoon_options INTERFACE)
target_include_directories(lagoon_options INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_options(lagoon_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
# GCC 12 warns of impossible overlaps inside std::string's operator+ (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lagoon_options INTERFACE -Wno-restrict)
endif()
# A fused multiply-add is one rounding, two instructions are two: contraction left to the compiler
# would make sums depend on where it finds one. Kernels that want it write it.
target_compile_options(lagoon_options INTERFACE -ffp-contract=off)
if(LAGOON_WERROR)
  target_compile_options(lagoon_options INTERFACE -Werror)
endif()
if(LAGOON_SANITIZE)
  # null, object-size and vptr take a third of the time of compiling, and what they find ends a test
  # under AddressSanitizer too.
  target_compile_options(lagoon_options INTERFACE "-fsanitize=${LAGOON_SANITIZE}" -fno-omit-frame-pointer
    -fno-sanitize-recover=all -fno-sanitize=null,object-size,vptr)
  target_link_options(lagoon_options INTERFACE "-fsanitize=${LAGOON_SANITIZE}")
endif()
if(LAGOON_PORTABLE)
  target_link_options(lagoon_options INTERFACE -static-libstdc++ -static-libgcc)
  set(CMAKE_BUILD_RPATH "$ORIGIN")  # as a link option, Ninja's escapes leave nothing of it
  set(LAGOON_FMT fmt::fmt-header-only)
else()
  set(LAGOON_FMT fmt::fmt)
endif()
target_link_libraries(lagoon_options INTERFACE Threads::Threads)

# lagoon_library(<name> SOURCES ... [TESTS ...] [SLOW_TESTS ...] [DEPENDS <folder> ...]
#                [PRIVATE <target> ...] [TEST_DEPENDS <folder-or-target> ...])
#   SOURCES        x.cpp files of this folder (headers need no mention)
#   TESTS          x_test.cpp files, linked into one program <name>_test
#   SLOW_TESTS     the same for <name>_slow_test, which only `scripts/test.sh --slow` runs
#   DEPENDS        other lagoon libraries this one may include
#   PRIVATE        third-party targets used in .cpp files only
#   TEST_DEPENDS   what the tests need beyond the library itself
function(lagoon_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;SLOW_TESTS;DEPENDS;PRIVATE;TEST_DEPENDS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "lagoon_library(${name}): ${ARG_UNPARSED_ARGUMENTS} belongs to no keyword.")
  endif()
  add_library(lagoon_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(lagoon_${name} PUBLIC lagoon_options ${LAGOON_FMT})
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(lagoon_${name} PUBLIC lagoon_${dependency})
  endforeach()
  target_link_libraries(lagoon_${name} PRIVATE ${ARG_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY LAGOON_LIBRARIES lagoon_${name})
  if(LAGOON_TESTS AND ARG_TESTS)
    lagoon_test(${name}_test SOURCES ${ARG_TESTS}
                DEPENDS lagoon_${name} ${ARG_PRIVATE} ${ARG_TEST_DEPENDS})
  endif()
  if(LAGOON_TESTS AND ARG_SLOW_TESTS)
    lagoon_test(${name}_slow_test SLOW SOURCES ${ARG_SLOW_TESTS}
                DEPENDS lagoon_${name} ${ARG_PRIVATE} ${ARG_TEST_DEPENDS})
  endif()
endfunction()

# The tests of all folders share one precompiled header. They are compiled without optimization, which
# takes half the time; what they test is compiled as ever.
function(lagoon_test_headers)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/test_headers.cpp" CONTENT "\n")
  add_library(lagoon_test_headers OBJECT "${CMAKE_BINARY_DIR}/test_headers.cpp")
  target_link_libraries(lagoon_test_headers PRIVATE lagoon_test_options)
  target_precompile_headers(lagoon_test_headers PRIVATE
    <algorithm> <functional> <memory> <optional> <span> <string> <string_view> <vector> <fmt/core.h>
    <gmock/gmock.h> <gtest/gtest.h>)
endfunction()
if(LAGOON_TESTS)
  add_library(lagoon_test_options INTERFACE)
  target_link_libraries(lagoon_test_options INTERFACE
    lagoon_options ${LAGOON_FMT} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(lagoon_test_options INTERFACE LAGOON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(lagoon_test_options INTERFACE -O0
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  lagoon_test_headers()
endif()

# lagoon_test(<name> [SLOW|LONG] SOURCES ... DEPENDS <folder-or-target> ...): one GoogleTest program, run
# by ctest as a whole, so that what its cases share (a loaded model) is made once. The cases are
# counted from <build>/test-results/<name>.json (tools/count_tests.py). SLOW gives it the label slow,
# LONG the label long: programs that a sanitizer would make take many minutes run without one only,
# and that use two processors.
function(lagoon_test name)
  cmake_parse_arguments(ARG "SLOW;LONG" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  foreach(dependency IN LISTS ARG_DEPENDS)
    if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/src/${dependency}")
      set(dependency lagoon_${dependency})
    endif()
    target_link_libraries(${name} PRIVATE ${dependency})
  endforeach()
  target_link_libraries(${name} PRIVATE lagoon_test_options)
  target_precompile_headers(${name} REUSE_FROM lagoon_test_headers)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT 600
    ENVIRONMENT "GTEST_OUTPUT=json:${CMAKE_BINARY_DIR}/test-results/${name}.json")
  if(ARG_SLOW)
    set_tests_properties(${name} PROPERTIES LABELS slow TIMEOUT 3600)
  elseif(ARG_LONG)
    set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 1800 PROCESSORS 2)
  endif()
endfunction()

# lagoon_check_headers(): the target check_headers compiles every header of src/ alone, which fails
# where a header leans on what its users happen to include before it.
function(lagoon_check_headers)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/src/*.h")
  set(sources)
  foreach(header IN LISTS headers)
    set(source "${CMAKE_BINARY_DIR}/check_headers/${header}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(check_headers PRIVATE lagoon_options ${LAGOON_FMT})
  target_compile_options(check_headers PRIVATE -O0 -Werror)
endfunction()
