# LibTorch as the target bnlab_torch (headers as SYSTEM), with CUDA where nvcc is.
if(NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
  set(ENV{TORCH_CUDA_ARCH_LIST} "8.0+PTX")  # without a GPU, torch's own detection asks for too old ones
endif()
if(BNLAB_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
endif()
find_package(OpenMP REQUIRED)  # at::parallel_for is an inline function: without it, it runs on one thread
add_library(bnlab_torch INTERFACE)
# libtorch.so exports parts of an older libstdc++ (std::filesystem::remove_all, which crashes): the system's comes first.
target_link_libraries(bnlab_torch INTERFACE -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state OpenMP::OpenMP_CXX)

if(BNLAB_CUDA AND CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 cannot express C++20 for nvcc
  enable_language(CUDA)
  find_package(Torch REQUIRED)
  target_include_directories(bnlab_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(bnlab_torch INTERFACE ${TORCH_LIBRARIES})
  # c10d's class layouts depend on NCCL's version: the header beside the torch wheel, else the system's.
  find_path(NCCL_INCLUDE nccl.h HINTS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include REQUIRED)
  target_include_directories(bnlab_torch SYSTEM INTERFACE ${NCCL_INCLUDE})
  message(STATUS "bnlab: CUDA kernels for $ENV{TORCH_CUDA_ARCH_LIST}, by ${CMAKE_CUDA_COMPILER}")
else()
  # A LibTorch that was built with CUDA aborts its own find_package where no toolkit is.
  find_path(TORCH_INCLUDE ATen/ATen.h PATH_SUFFIXES ../../include REQUIRED)
  target_include_directories(bnlab_torch SYSTEM INTERFACE ${TORCH_INCLUDE}
                             ${TORCH_INCLUDE}/torch/csrc/api/include)
  foreach(name IN ITEMS torch torch_cpu c10)
    find_library(LIB_${name} ${name} HINTS ${TORCH_INCLUDE}/../lib REQUIRED)
    target_link_libraries(bnlab_torch INTERFACE ${LIB_${name}})
  endforeach()
  target_compile_definitions(bnlab_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  message(STATUS "bnlab: without CUDA")
endif()
