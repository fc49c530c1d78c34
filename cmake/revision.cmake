# The version, git revision and fingerprints that records carry (harness/support/revision.hpp), in a source that is renewed at every
# build, changes only when they do, and compiles in no time.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(bnlab_revision ${PROJECT_BINARY_DIR}/generated/revision.cpp)
add_custom_target(bnlab_write_revision
  COMMAND ${CMAKE_COMMAND} -DOUT=${bnlab_revision} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DPYTHON=${Python3_EXECUTABLE}
          -P ${PROJECT_SOURCE_DIR}/cmake/write_revision.cmake
  BYPRODUCTS ${bnlab_revision})
set_source_files_properties(${bnlab_revision} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
