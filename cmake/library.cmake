# What bnlab::strategies is made of. Components register themselves, so these are OBJECT libraries: from an archive the
# linker would drop them. program.cmake gives `harness` more sources.
#   harness_plain    needs no LibTorch, compiles in seconds
#   harness          what needs LibTorch
#   harness_gpus     what of it needs CUDA, too
#   cpu_loops        the sweeps over activations
#   cpu_kernels      how they are called; for GPUs in cuda_kernels
#   strategies       one file per strategy, and the engine
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
include(cmake/texts.cmake)
if(NOT BNLAB_PLAIN_ONLY)
  include(cmake/torch.cmake)
  include(cmake/kernels.cmake)
endif()

file(GLOB plain_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     harness/towers.cpp harness/population.cpp harness/support/*.cpp harness/components/*.cpp
     harness/communicator/host/*.cpp)
add_library(harness_plain OBJECT ${plain_sources})
target_link_libraries(harness_plain PUBLIC bnlab_warnings nlohmann_json::nlohmann_json Threads::Threads)
target_include_directories(harness_plain SYSTEM PRIVATE ${bnlab_texts})
# Messages of nlohmann/json name the place in the document. It loses some of these places when a key is erased from an
# ordered object, and then fails its own assertion: where assertions are on, messages go without them.
target_compile_definitions(harness_plain PUBLIC JSON_DIAGNOSTICS=$<NOT:$<CONFIG:Debug>>)
target_precompile_headers(harness_plain PRIVATE <nlohmann/json.hpp>)
bnlab_compile_together(harness_plain "harness|harness/support|harness/components|harness/communicator/host")

if(NOT BNLAB_PLAIN_ONLY)
  file(GLOB harness_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       harness/communicator/*.cpp harness/embed/*.cpp harness/layer/layer_case.cpp harness/layer/tensor_json.cpp)
  # These and cpu_kernels are all that a build compiles again when it gets the CUDA kernels.
  set(gpu_sources harness/communicator/gpus.cpp harness/communicator/nccl.cpp harness/communicator/peer_communicator.cpp
                   harness/training/cuda_graph_recorder.cpp)
  list(REMOVE_ITEM harness_sources ${plain_sources} ${gpu_sources})
  add_library(harness_gpus OBJECT ${gpu_sources})
  target_link_libraries(harness_gpus PRIVATE bnlab_warnings bnlab_torch $<TARGET_NAME_IF_EXISTS:bnlab_cuda>)
  add_library(harness OBJECT harness/recomputation.cpp harness/strategy.cpp ${harness_sources})
  target_include_directories(harness SYSTEM PRIVATE harness/communicator/gloo_headers)
  target_include_directories(harness PRIVATE harness/embed)  # the public headers include each other as programs do
  target_link_libraries(harness PUBLIC harness_plain bnlab_torch)
  # The headers that take longest, compiled once for all targets that use LibTorch.
  target_precompile_headers(harness PRIVATE <torch/types.h> <torch/nn/module.h> <nlohmann/json.hpp>)
  bnlab_compile_together(harness_gpus)
  bnlab_compile_together(harness "harness|harness/layer|harness/communicator")

  file(GLOB kernel_sources CONFIGURE_DEPENDS strategies/kernels/*.cpp)
  set(loop_sources ${kernel_sources})
  list(FILTER loop_sources INCLUDE REGEX "/cpu_[a-z0-9]+\\.cpp$")
  list(REMOVE_ITEM kernel_sources ${loop_sources})
  add_library(cpu_loops OBJECT ${loop_sources})
  target_link_libraries(cpu_loops PRIVATE bnlab_warnings)
  add_library(cpu_kernels OBJECT ${kernel_sources})
  target_sources(cpu_kernels INTERFACE $<TARGET_OBJECTS:cpu_loops>)
  if(TARGET cuda_kernels)
    target_compile_definitions(cpu_kernels PRIVATE BNLAB_WITH_CUDA)
    target_sources(cpu_kernels INTERFACE $<TARGET_OBJECTS:cuda_kernels>)
  endif()

  file(GLOB_RECURSE strategy_sources CONFIGURE_DEPENDS strategies/*.cpp)
  list(FILTER strategy_sources EXCLUDE REGEX "/strategies/(kernels|reference)/")
  add_library(strategies OBJECT ${strategy_sources})
  target_compile_options(cpu_kernels PRIVATE ${step_flags})
  foreach(target cpu_kernels strategies)
    target_link_libraries(${target} PUBLIC harness)
    target_precompile_headers(${target} REUSE_FROM harness)
    bnlab_compile_together(${target} "strategies/engine|strategies/engine/exchange")
  endforeach()
  # A file that includes LibTorch needs up to 1.5 GB to compile.
  cmake_host_system_information(RESULT megabytes QUERY AVAILABLE_PHYSICAL_MEMORY)
  math(EXPR jobs "${megabytes} / 2048 + 1")
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch=${jobs})
  set_target_properties(harness harness_gpus cpu_kernels strategies PROPERTIES JOB_POOL_COMPILE torch)
endif()
