# The CPU kernels are built once per instruction set and chosen at run time; the CUDA kernels where nvcc is, as a
# library of their own: they take longest, and ninja begins with the target that was named first.
set(loop_flags -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=fast)
set_source_files_properties(strategies/kernels/cpu_baseline.cpp PROPERTIES COMPILE_OPTIONS "${loop_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(strategies/kernels/cpu_avx2.cpp PROPERTIES
                              COMPILE_OPTIONS "${loop_flags};-mavx2;-mfma")
  set_source_files_properties(strategies/kernels/cpu_avx512.cpp PROPERTIES
                              COMPILE_OPTIONS "${loop_flags};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
endif()
# The steps between the sweeps round as they are written, alike on every device: moments e_x2 exists to show what that
# loses. It is not so for the steps that a sweep runs at the end of its own launch on CUDA (local_forward and
# local_backward).
set(step_flags -ffp-contract=off)  # of all that library.cmake puts into cpu_kernels
set_source_files_properties(strategies/kernels/steps.cu PROPERTIES COMPILE_OPTIONS "--fmad=false")
if(CMAKE_CUDA_COMPILER)
  file(GLOB cuda_sources CONFIGURE_DEPENDS strategies/kernels/*.cu harness/communicator/*.cu)
  add_library(cuda_kernels OBJECT ${cuda_sources})
  target_link_libraries(cuda_kernels PRIVATE bnlab_warnings bnlab_torch bnlab_cuda)
endif()
