# The library for other LibTorch programs: harness/embed/bnlab.hpp and the headers that it includes, in two targets.
#   bnlab::strategies  two archives. Of libbnlab_strategies.a a program must link every object, because strategies register
#                      themselves; of libbnlab_harness.a the linker takes what they need.
#   bnlab::shared      libbnlab.so, where the headers' functions are all that is seen. One that the program was not built with
#                      serves it as long as its first number is the same.
# Other programs get them
#   by add_subdirectory or FetchContent of this folder, which then builds nothing else for them;
#   by find_package(bnlab), once this project has been built and installed.
set(catalogue $<TARGET_OBJECTS:strategies> $<TARGET_OBJECTS:cpu_loops> $<TARGET_OBJECTS:cpu_kernels>)
if(TARGET cuda_kernels)
  list(APPEND catalogue $<TARGET_OBJECTS:cuda_kernels>)
endif()
add_library(bnlab_strategies STATIC ${catalogue})
add_library(bnlab_harness STATIC $<TARGET_OBJECTS:harness> $<TARGET_OBJECTS:harness_gpus> $<TARGET_OBJECTS:harness_plain>)
if(BNLAB_PROGRAM)
  target_sources(bnlab_harness PRIVATE $<TARGET_OBJECTS:harness_records>)  # which the program's part of `harness` needs
endif()
set_target_properties(bnlab_strategies bnlab_harness PROPERTIES LINKER_LANGUAGE CXX)

add_library(bnlab_embed INTERFACE)
add_library(bnlab::strategies ALIAS bnlab_embed)
target_compile_features(bnlab_embed INTERFACE cxx_std_20)
target_include_directories(bnlab_embed INTERFACE ${PROJECT_SOURCE_DIR}/harness/embed)
target_include_directories(bnlab_embed SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/harness/communicator/gloo_headers)
# libstdc++ comes first: where a program's other libraries look for its functions, they must not find those that parts of
# libbnlab_harness.a have instantiated, which would bring these parts along.
target_link_libraries(bnlab_embed INTERFACE -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state $<LINK_LIBRARY:WHOLE_ARCHIVE,bnlab_strategies>
                                            bnlab_harness bnlab_torch Threads::Threads)

# The headers' functions, which nothing in the library asks for; the linker takes the rest from the archive.
set(public_objects $<FILTER:$<TARGET_OBJECTS:harness>,INCLUDE,harness[/_]embed[/_]>)
add_library(bnlab_shared SHARED ${catalogue} ${public_objects})
add_library(bnlab::shared ALIAS bnlab_shared)
set(exports ${CMAKE_CURRENT_LIST_DIR}/exports.map)
set_target_properties(bnlab_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME bnlab VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${exports} INSTALL_RPATH ${bnlab_libtorch}/lib)
target_compile_features(bnlab_shared INTERFACE cxx_std_20)
target_include_directories(bnlab_shared INTERFACE ${PROJECT_SOURCE_DIR}/harness/embed)
target_include_directories(bnlab_shared SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/harness/communicator/gloo_headers)
target_link_options(bnlab_shared PRIVATE LINKER:--version-script=${exports} LINKER:--no-undefined)
target_link_libraries(bnlab_shared PUBLIC bnlab_torch PRIVATE bnlab_harness Threads::Threads)

# The package names the LibTorch of this build by its files.
if(BNLAB_PROGRAM)
  add_dependencies(bnlab bnlab_strategies bnlab_harness bnlab_shared)  # so that there is something to install
  include(CMakePackageConfigHelpers)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/bnlab)
  configure_package_config_file(cmake/bnlabConfig.cmake.in ${PROJECT_BINARY_DIR}/bnlabConfig.cmake
                                INSTALL_DESTINATION ${package} NO_CHECK_REQUIRED_COMPONENTS_MACRO
                                PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/bnlabConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(TARGETS bnlab_strategies bnlab_harness bnlab_shared ARCHIVE LIBRARY)
  install(FILES harness/embed/bnlab.hpp TYPE INCLUDE)
  install(DIRECTORY harness/embed/bnlab TYPE INCLUDE)
  install(DIRECTORY harness/communicator/gloo_headers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bnlab)
  install(FILES ${PROJECT_BINARY_DIR}/bnlabConfig.cmake ${PROJECT_BINARY_DIR}/bnlabConfigVersion.cmake DESTINATION ${package})
endif()
