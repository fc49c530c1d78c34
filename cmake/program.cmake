# The program `bnlab`:
#   harness_records   specs and records, which need no LibTorch
#   harness_program   launching and the command line; without LibTorch, but has to be linked with a run_rank
#   harness           gets models, tasks and training (with its run_rank)
#   harness_checks    what looks at networks and strategies: layer, verify, inference, counting and panel
#   references        the strategies' float64 references
find_package(CLI11 REQUIRED)
find_package(GTest)
# Headers alone; each may lie below another folder of CMAKE_PREFIX_PATH.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(BOOST_MATH_INCLUDE boost/math/distributions/students_t.hpp REQUIRED)
include(cmake/revision.cmake)
include(cmake/numerics.cmake)
include(cmake/clusters.cmake)
include(cmake/schemas.cmake)

# A folder that is not named here needs no LibTorch.
file(GLOB_RECURSE plain_sources CONFIGURE_DEPENDS harness/*/*.cpp)
list(FILTER plain_sources EXCLUDE REGEX
     "/harness/(cli|communicator|components|counting|embed|inference|launch|layer|models|panel|probe|tasks|training|vectors|verify)/")
add_library(harness_records OBJECT ${plain_sources})
target_link_libraries(harness_records PUBLIC harness_plain)
target_precompile_headers(harness_records REUSE_FROM harness_plain)
target_include_directories(harness_records SYSTEM PRIVATE ${XXHASH_INCLUDE} ${BOOST_MATH_INCLUDE})
add_dependencies(harness_records bnlab_write_revision)
bnlab_compile_together(harness_records)
bnlab_compile_quickly(harness_records)

file(GLOB program_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} harness/launch/*.cpp harness/cli/*.cpp)
list(REMOVE_ITEM program_sources harness/cli/main.cpp)
add_library(harness_program OBJECT ${program_sources})
target_link_libraries(harness_program PUBLIC harness_records CLI11::CLI11)
target_include_directories(harness_program SYSTEM PRIVATE ${XXHASH_INCLUDE})
target_precompile_headers(harness_program REUSE_FROM harness_plain)
bnlab_compile_together(harness_program)
bnlab_compile_quickly(harness_program)

if(NOT BNLAB_PLAIN_ONLY)
  file(GLOB_RECURSE harness_sources CONFIGURE_DEPENDS harness/models/*.cpp harness/tasks/*.cpp harness/training/*.cpp)
  target_sources(harness PRIVATE ${harness_sources})
  include(cmake/images.cmake)
  include(GNUInstallDirs)
  # Where the task looks for the images that come with the program: in the project, and beside an installed program.
  set_property(SOURCE harness/tasks/nuclei.cpp APPEND PROPERTY COMPILE_DEFINITIONS
               BNLAB_PROJECT="${PROJECT_SOURCE_DIR}" BNLAB_INSTALLED_DATA="${CMAKE_INSTALL_DATADIR}/bnlab")
  bnlab_compile_together(harness "harness|harness/layer" "harness/training/losses|harness/training/optimizers")

  file(GLOB check_sources CONFIGURE_DEPENDS harness/layer/*.cpp harness/verify/*.cpp harness/vectors/*.cpp harness/inference/*.cpp
       harness/counting/*.cpp harness/panel/*.cpp harness/probe/*.cpp)
  list(FILTER check_sources EXCLUDE REGEX "/layer/(layer_case|tensor_json)\\.cpp$")  # of the library
  add_library(harness_checks OBJECT ${check_sources})
  target_link_libraries(harness_checks PUBLIC harness)
  target_precompile_headers(harness_checks REUSE_FROM harness)
  set_target_properties(harness_checks PROPERTIES JOB_POOL_COMPILE torch)
  bnlab_compile_together(harness_checks "harness/layer|harness/counting" "harness/verify|harness/panel|harness/inference")
  bnlab_compile_quickly(harness_checks)

  file(GLOB reference_sources CONFIGURE_DEPENDS strategies/reference/*.cpp)
  add_library(references OBJECT ${reference_sources})
  target_link_libraries(references PUBLIC harness)
  target_precompile_headers(references REUSE_FROM harness)
  set_target_properties(references PROPERTIES JOB_POOL_COMPILE torch)
  bnlab_compile_together(references)
  bnlab_compile_quickly(references)

  add_executable(bnlab harness/cli/main.cpp)
  target_link_libraries(bnlab PRIVATE strategies references cpu_kernels harness_checks harness harness_program harness_records harness_plain)
  include(cmake/install.cmake)
endif()
