# The version, git revision and fingerprints that records carry, in a header that is renewed at every build (and
# changes only when they do); environment.cpp of harness/store is compiled with it.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(revision_header ${PROJECT_BINARY_DIR}/revision/revision.hpp)
add_custom_target(bnlab_write_revision
  COMMAND ${CMAKE_COMMAND} -DOUT=${revision_header} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DPYTHON=${Python3_EXECUTABLE}
          -P ${PROJECT_SOURCE_DIR}/cmake/write_revision.cmake
  BYPRODUCTS ${revision_header})
set_source_files_properties(harness/store/environment.cpp PROPERTIES COMPILE_OPTIONS "-include;${revision_header}")
