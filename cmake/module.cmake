# tessera_tier(MODULE TIER FLAGS SOURCES...): the module's *_tier.cc files compiled for one instruction tier, each in its own namespace.
function(tessera_tier MODULE TIER FLAGS)
  set(target tessera_${MODULE}_${TIER})
  string(TOUPPER ${TIER} upper)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE TSR_TIER=${TIER} TSR_TIER_${upper})
  target_compile_options(${target} PRIVATE ${FLAGS} -fno-math-errno -fno-trapping-math
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)  # gcc 12 warns about its own intrinsics
  target_link_libraries(${target} PRIVATE tessera_core)
endfunction()

# tessera_module(NAME DEPS...): the library of src/NAME, the test program of tests/NAME and the benches of bench/NAME.
# DEPS are the arrows of docs/architecture.md: what this module may include, and therefore link.
function(tessera_module NAME)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${NAME}/*.cc)
  file(GLOB tier_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${NAME}/*_tier.cc)
  if(tier_sources)
    list(REMOVE_ITEM sources ${tier_sources})
    tessera_tier(${NAME} scalar "" ${tier_sources})
    tessera_tier(${NAME} avx2 "-mavx2;-mfma;-mf16c;-mbmi2;-mtune=haswell" ${tier_sources})
    # -mtune=znver3: gcc's icelake tuning splits 512-bit loads; this one does not (measured on gcc 12).
    tessera_tier(${NAME} avx512 "-march=icelake-server;-mavx512bf16;-mtune=znver3;-mprefer-vector-width=512" ${tier_sources})
    list(APPEND sources $<TARGET_OBJECTS:tessera_${NAME}_scalar> $<TARGET_OBJECTS:tessera_${NAME}_avx2>
                        $<TARGET_OBJECTS:tessera_${NAME}_avx512>)
  endif()
  if(NOT sources)
    message(STATUS "module ${NAME} has no sources yet")
    add_library(tessera_${NAME} INTERFACE)
    return()
  endif()
  add_library(tessera_${NAME} STATIC ${sources})
  target_include_directories(tessera_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(dep ${ARGN})
    target_link_libraries(tessera_${NAME} PUBLIC tessera_${dep})
  endforeach()

  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${NAME}/*_test.cc)
  if(TESSERA_TESTS AND tests)
    add_executable(${NAME}_test ${tests})
    target_include_directories(${NAME}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${NAME}_test PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_link_libraries(${NAME}_test PRIVATE tessera_${NAME} tessera_test_support GTest::gtest GTest::gtest_main)
    add_test(NAME ${NAME} COMMAND ${NAME}_test)
  endif()

  file(GLOB benches CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/${NAME}/*_bench.cc)
  if(TESSERA_BENCHES)
    foreach(bench ${benches})
      get_filename_component(stem ${bench} NAME_WE)
      add_executable(${stem} ${bench})
      target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/bench)
      target_compile_definitions(${stem} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
      target_link_libraries(${stem} PRIVATE tessera_${NAME} benchmark::benchmark)
    endforeach()
  endif()
endfunction()
