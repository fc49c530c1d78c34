# LibTorch as the target bnlab_torch (headers as SYSTEM), found by its files: the package of a LibTorch that was built with
# CUDA aborts where no toolkit is. Without the CUDA kernels, libtorch_cuda.so and the dozen libraries that it needs are left
# out. What LibTorch offers on GPUs is in the target bnlab_cuda.
find_package(OpenMP REQUIRED)  # at::parallel_for is an inline function: without it, it runs on one thread
find_path(TORCH_INCLUDE ATen/ATen.h HINTS ${TORCH_INSTALL_PREFIX}/include PATH_SUFFIXES ../../include REQUIRED)
cmake_path(GET TORCH_INCLUDE PARENT_PATH bnlab_libtorch)
file(REAL_PATH ${bnlab_libtorch} bnlab_libtorch)
set(bnlab_libraries ${bnlab_libtorch}/lib/libtorch_cpu.so ${bnlab_libtorch}/lib/libc10.so)

add_library(bnlab_torch INTERFACE)
target_include_directories(bnlab_torch SYSTEM INTERFACE ${bnlab_libtorch}/include
                           ${bnlab_libtorch}/include/torch/csrc/api/include)
target_compile_definitions(bnlab_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)

set(torch_cuda ${bnlab_libtorch}/lib/libtorch_cuda.so)
set(lacking "")  # of what the CUDA kernels need
if(NOT BNLAB_CUDA)
  set(lacking "BNLAB_CUDA=ON")
elseif(NOT EXISTS ${torch_cuda})
  set(lacking "a LibTorch with CUDA")
else()
  find_package(CUDAToolkit QUIET)
  # c10d's class layouts depend on NCCL's version: the header beside the torch wheel, else the system's.
  find_path(NCCL_INCLUDE nccl.h HINTS ${bnlab_libtorch}/../nvidia/nccl/include)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CUDAToolkit_FOUND OR NOT CMAKE_CUDA_COMPILER)
    set(lacking "nvcc")
  elseif(NOT NCCL_INCLUDE)
    set(lacking "nccl.h")
  endif()
endif()
if(lacking)
  set(CMAKE_CUDA_COMPILER "")
  message(STATUS "bnlab: without CUDA kernels, which need ${lacking}")
else()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80)  # and newer ones, for which the driver translates
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know for nvcc
  find_library(CUDA_RUNTIME cudart HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  cmake_path(NORMAL_PATH NCCL_INCLUDE)
  add_library(bnlab_cuda INTERFACE)
  target_include_directories(bnlab_cuda SYSTEM INTERFACE ${NCCL_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(bnlab_cuda INTERFACE USE_C10D_NCCL)
  target_compile_options(bnlab_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --expt-extended-lambda>)
  # tests/simgpu links programs with another runtime.
  set(runtime $<TARGET_PROPERTY:BNLAB_CUDA_RUNTIME>)
  list(APPEND bnlab_libraries ${torch_cuda} ${bnlab_libtorch}/lib/libc10_cuda.so $<IF:$<BOOL:${runtime}>,${runtime},${CUDA_RUNTIME}>)
  message(STATUS "bnlab: CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES}, by ${CMAKE_CUDA_COMPILER}")
endif()
# The wheel has an OpenMP runtime of its own, and a process needs one only.
set(bnlab_openmp OpenMP::OpenMP_CXX)
if(EXISTS ${bnlab_libtorch}/lib/libgomp.so.1 AND OpenMP_CXX_LIB_NAMES MATCHES gomp)
  target_compile_options(bnlab_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${OpenMP_CXX_FLAGS}>)
  set(bnlab_openmp ${bnlab_libtorch}/lib/libgomp.so.1)
endif()
# LibTorch exports parts of an older libstdc++ (std::filesystem::remove_all, which crashes): the system's comes first.
# LibTorch's libraries register operators, also those that nothing here names.
target_link_libraries(bnlab_torch INTERFACE -Wl,--push-state,--no-as-needed -lstdc++ ${bnlab_libraries} -Wl,--pop-state ${bnlab_openmp})
