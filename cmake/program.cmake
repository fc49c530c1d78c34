# The program `bnlab`:
#   harness_plain     gets specs and records, which need no LibTorch either
#   harness_program   launching and the command line; without LibTorch, but has to be linked with a run_rank
#   harness           gets models, tasks, layer, verify, training (with its run_rank), inference, counting and panel
#   references        the strategies' float64 references
find_package(CLI11 REQUIRED)
find_package(GTest)
# Headers alone; each may lie below another folder of CMAKE_PREFIX_PATH.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(BOOST_MATH_INCLUDE boost/math/distributions/students_t.hpp REQUIRED)
include(cmake/revision.cmake)
include(cmake/numerics.cmake)

# A folder that is not named here needs no LibTorch.
file(GLOB_RECURSE plain_sources CONFIGURE_DEPENDS harness/*/*.cpp)
list(FILTER plain_sources EXCLUDE REGEX
     "/harness/(cli|communicator|components|counting|embed|inference|launch|layer|models|panel|tasks|training|verify)/")
target_sources(harness_plain PRIVATE ${plain_sources})
target_include_directories(harness_plain SYSTEM PRIVATE ${XXHASH_INCLUDE} ${BOOST_MATH_INCLUDE})
add_dependencies(harness_plain bnlab_write_revision)
bnlab_compile_together(harness_plain)

file(GLOB program_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} harness/launch/*.cpp harness/cli/*.cpp)
list(REMOVE_ITEM program_sources harness/cli/main.cpp)
add_library(harness_program OBJECT ${program_sources})
target_link_libraries(harness_program PUBLIC harness_plain CLI11::CLI11)
target_precompile_headers(harness_program REUSE_FROM harness_plain)
bnlab_compile_together(harness_program)

if(NOT BNLAB_PLAIN_ONLY)
  file(GLOB_RECURSE harness_sources CONFIGURE_DEPENDS harness/models/*.cpp harness/tasks/*.cpp harness/layer/*.cpp
       harness/verify/*.cpp harness/training/*.cpp harness/inference/*.cpp harness/counting/*.cpp harness/panel/*.cpp)
  target_sources(harness PRIVATE ${harness_sources})
  include(cmake/images.cmake)
  include(GNUInstallDirs)
  # Where the task looks for the images that come with the program: in the project, and beside an installed program.
  set_property(SOURCE harness/tasks/nuclei.cpp APPEND PROPERTY COMPILE_DEFINITIONS
               BNLAB_PROJECT="${PROJECT_SOURCE_DIR}" BNLAB_INSTALLED_DATA="${CMAKE_INSTALL_DATADIR}/bnlab")
  bnlab_compile_together(harness)

  file(GLOB reference_sources CONFIGURE_DEPENDS strategies/reference/*.cpp)
  add_library(references OBJECT ${reference_sources})
  target_link_libraries(references PUBLIC harness)
  target_precompile_headers(references REUSE_FROM harness)
  set_target_properties(references PROPERTIES JOB_POOL_COMPILE torch)
  bnlab_compile_together(references)

  add_executable(bnlab harness/cli/main.cpp)
  target_link_libraries(bnlab PRIVATE strategies references cpu_kernels harness harness_program harness_plain)
  include(cmake/install.cmake)
endif()
