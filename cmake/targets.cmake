# reelgrad_library(NAME SOURCES … DEPS … [TORCH]): one static library a folder, symbols hidden.
# reelgrad_test(NAME LABEL host|torch SOURCES … DEPS … [TORCH] [LOADED_BY_PYTHON]): a GoogleTest program; suites named
# *Gpu* get the label gpu, suites named *Slow* the label slow. LOADED_BY_PYTHON: it starts Pythons that load a library
# of ours, which in a sanitized build must have AddressSanitizer in them from the start.

add_library(reelgrad_options INTERFACE)
target_compile_features(reelgrad_options INTERFACE cxx_std_20)
target_include_directories(reelgrad_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(reelgrad_options INTERFACE FMT_HEADER_ONLY VS_USE_LATEST_API VSSCRIPT_USE_LATEST_API)
target_compile_options(reelgrad_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers -fno-gnu-unique>
  # False alarms of GCC 12 on std::string; a unity build's main file is none of ours.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-subobject-linkage>)
if(REELGRAD_WERROR)
  target_compile_options(reelgrad_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# libtorch itself is not instrumented, so nothing inside it is checked; what of our code calls it is (see
# sanitizer_defaults.cpp for what that costs). vptr needs type information that libtorch hides. ThreadSanitizer is for
# what has no torch: to it, the libraries' own locks would be races.
if(REELGRAD_SANITIZE)
  if(REELGRAD_SANITIZE STREQUAL "thread")
    set(sanitizers -fsanitize=thread)
  else()
    set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr)
  endif()
  target_compile_options(reelgrad_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${sanitizers};-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  target_link_options(reelgrad_options INTERFACE ${sanitizers})
  target_sources(reelgrad_options INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${CMAKE_CURRENT_LIST_DIR}/sanitizer_defaults.cpp>)
endif()

# The headers (LibTorch's, GoogleTest's, fmt's) cost more than our files: several are compiled as one, a target with
# torch whole. Files that would clash have names of their own.
function(reelgrad_unity target torch)
  set(files 6)
  if(torch)
    set(files 0)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

function(reelgrad_library name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_library(reelgrad_${name} STATIC ${arg_SOURCES})
  set_target_properties(reelgrad_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  reelgrad_unity(reelgrad_${name} ${arg_TORCH})
  target_link_libraries(reelgrad_${name} PUBLIC reelgrad_options)
  foreach(dep IN LISTS arg_DEPS)
    target_link_libraries(reelgrad_${name} PUBLIC reelgrad_${dep})
  endforeach()
  if(arg_TORCH)
    target_link_libraries(reelgrad_${name} PUBLIC reelgrad_torch)
    target_precompile_headers(reelgrad_${name} REUSE_FROM reelgrad_torch_pch)
  endif()
endfunction()

function(reelgrad_test name)
  cmake_parse_arguments(arg "TORCH;LOADED_BY_PYTHON" "LABEL" "SOURCES;DEPS" ${ARGN})
  add_executable(${name}_test ${arg_SOURCES})
  reelgrad_unity(${name}_test ${arg_TORCH})
  target_link_libraries(${name}_test PRIVATE reelgrad_options GTest::gmock GTest::gtest_main)
  foreach(dep IN LISTS arg_DEPS)
    target_link_libraries(${name}_test PRIVATE reelgrad_${dep})
  endforeach()
  if(arg_TORCH)
    target_compile_options(${name}_test PRIVATE -fPIC)  # not -fPIE: the precompiled header was made with -fPIC
    target_precompile_headers(${name}_test REUSE_FROM reelgrad_torch_pch)
  endif()
  target_compile_definitions(${name}_test PRIVATE
    REELGRAD_SOURCE_DIR="${CMAKE_SOURCE_DIR}" REELGRAD_TEST_PYTHON="${REELGRAD_PYTHON}")
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # Tests run side by side: a thread that has nothing to do is not to keep a core from another test.
  # What is measured of networks and clips is kept apart from the user's.
  set(environment "PYTHONDONTWRITEBYTECODE=1" "OMP_WAIT_POLICY=PASSIVE" "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/tests/cache")
  if(REELGRAD_SANITIZE STREQUAL "address" AND arg_LOADED_BY_PYTHON)
    foreach(library IN ITEMS libasan.so libstdc++.so.6)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library}
        OUTPUT_VARIABLE ${library} OUTPUT_STRIP_TRAILING_WHITESPACE)
    endforeach()
    list(APPEND environment "LD_PRELOAD=${libasan.so}:${libstdc++.so.6}"
      "ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0")
  endif()
  set(tests ${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake)
  file(GENERATE OUTPUT ${tests} CONTENT "set(PROGRAM \"$<TARGET_FILE:${name}_test>\")
set(NAME ${name})
set(LABEL ${arg_LABEL})
set(ENVIRONMENT \"${environment}\")
include(\"${CMAKE_SOURCE_DIR}/cmake/discover_suites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${tests})
endfunction()
