# The programs `bnlab`, which trains, predicts and reports, and `bnlab-more`, which has the commands of harness/cli/more besides:
#   harness_records   specs and records, which need no LibTorch
#   harness_program   launching and the command line; without LibTorch, but has to be linked with a run_rank
#   harness           gets the tasks
#   harness_networks  models, training (with its run_rank) and inference; what counts and times a step of it
#   harness_more      the commands of bnlab-more
#   harness_checks    what they call: layer, verify, vectors, panel and probe
#   references        the strategies' float64 references
find_package(GTest)
# Headers alone; each may lie below another folder of CMAKE_PREFIX_PATH.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(BOOST_MATH_INCLUDE boost/math/distributions/students_t.hpp REQUIRED)
include(cmake/revision.cmake)

# A folder that is not named here needs no LibTorch.
file(GLOB_RECURSE plain_sources CONFIGURE_DEPENDS harness/*/*.cpp)
list(FILTER plain_sources EXCLUDE REGEX
     "/harness/(cli|communicator|components|counting|embed|inference|launch|layer|models|panel|probe|support|tasks|training|vectors|verify)/")
add_library(harness_records OBJECT ${plain_sources} ${bnlab_revision})
target_link_libraries(harness_records PUBLIC harness_plain)
target_precompile_headers(harness_records REUSE_FROM harness_plain)
target_include_directories(harness_records SYSTEM PRIVATE ${XXHASH_INCLUDE} ${BOOST_MATH_INCLUDE} ${bnlab_texts})
add_dependencies(harness_records bnlab_write_revision)
bnlab_compile_together(harness_records "harness/store|harness/numerics|harness/queue" "harness/transfer|harness/prediction")
bnlab_compile_quickly(harness_records)

file(GLOB program_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} harness/launch/*.cpp harness/cli/*.cpp)
list(REMOVE_ITEM program_sources harness/cli/main.cpp harness/cli/elsewhere.cpp)
add_library(harness_program OBJECT ${program_sources})
file(GLOB more_sources CONFIGURE_DEPENDS harness/cli/more/*.cpp)
add_library(harness_more OBJECT ${more_sources})
foreach(target harness_program harness_more)
  target_link_libraries(${target} PUBLIC harness_records)
  target_precompile_headers(${target} REUSE_FROM harness_plain)
  bnlab_compile_together(${target})
  bnlab_compile_quickly(${target})
endforeach()

if(NOT BNLAB_PLAIN_ONLY)
  file(GLOB_RECURSE task_sources CONFIGURE_DEPENDS harness/tasks/*.cpp)
  target_sources(harness PRIVATE ${task_sources})
  target_include_directories(harness SYSTEM PRIVATE ${bnlab_texts})
  include(cmake/images.cmake)
  bnlab_compile_together(harness "harness|harness/layer|harness/communicator" "harness/tasks|harness/tasks/images")

  set(steps harness/probe/steps.cpp harness/probe/sites.cpp harness/probe/turns.cpp)  # which `report --probe` counts
  file(GLOB_RECURSE network_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       harness/models/*.cpp harness/training/*.cpp harness/inference/*.cpp harness/counting/*.cpp)
  list(REMOVE_ITEM network_sources ${gpu_sources})
  add_library(harness_networks OBJECT ${network_sources} ${steps})
  file(GLOB check_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} harness/layer/*.cpp harness/verify/*.cpp harness/vectors/*.cpp harness/panel/*.cpp
       harness/probe/*.cpp)
  list(FILTER check_sources EXCLUDE REGEX "layer/(layer_case|tensor_json)\\.cpp$")  # of the library
  list(REMOVE_ITEM check_sources ${steps})
  add_library(harness_checks OBJECT ${check_sources})
  file(GLOB reference_sources CONFIGURE_DEPENDS strategies/reference/*.cpp)
  add_library(references OBJECT ${reference_sources})
  foreach(target harness_networks harness_checks references)
    target_link_libraries(${target} PUBLIC harness)
    target_precompile_headers(${target} REUSE_FROM harness)
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch)
    bnlab_compile_together(${target} "harness/training|harness/training/timing|harness/training/endings"
                           "harness/models|harness/models/backbones|harness/training/losses|harness/training/optimizers"
                           "harness/inference|harness/counting|harness/probe"
                           "harness/verify|harness/panel" "harness/vectors|harness/layer")
    bnlab_compile_quickly(${target})
  endforeach()

  # What each program is made of.
  set(bnlab_parts strategies cpu_kernels harness_networks harness harness_gpus harness_program harness_records harness_plain)
  set(bnlab_more_parts references harness_checks harness_more ${bnlab_parts})
  add_executable(bnlab harness/cli/main.cpp harness/cli/elsewhere.cpp)
  target_link_libraries(bnlab PRIVATE ${bnlab_parts})
  add_executable(bnlab-more harness/cli/main.cpp)
  target_link_libraries(bnlab-more PRIVATE ${bnlab_more_parts})
  include(cmake/install.cmake)
endif()
