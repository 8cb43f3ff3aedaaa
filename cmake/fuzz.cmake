# One libFuzzer program per tests/fuzz/*_fuzz.cc; its seeds lie in tests/fuzz/corpus/STEM (tools/run_tests.py runs them).
# The whole build carries -fsanitize=fuzzer-no-link (CMakePresets.json), so that the libraries report their coverage.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "TESSERA_FUZZERS needs clang++; use the preset debug-asan-ubsan.")
endif()
file(GLOB fuzzers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(fuzzer ${fuzzers})
  get_filename_component(stem ${fuzzer} NAME_WE)
  add_executable(${stem} ${fuzzer})
  target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${stem} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${stem} PRIVATE tessera_engine)
  target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
endforeach()
