// Starting kernels so that the next one's first blocks may be there before the last one's last are
// done (programmatic dependent launch: CUDA C++ Programming Guide). What a kernel reads of others,
// and what it writes, comes after wait_for_others(). Before that it may read weights; rows and page
// tables of the step, which were there before its first kernel; and the choice of experts once the
// kernel before it let nobody start until that was there: the last two past the first-level cache.
// The experts' gate and up wait for the choice itself (Routing::made), and for others at their end.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"

namespace lagoon::kernels::cuda {

// Until all kernels before this one have ended, and what they wrote can be read.
__device__ inline void wait_for_others() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel's blocks may come where there is room. Once all blocks have said so.
__device__ inline void let_others_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether this block is the last of `blocks` that come here, each once: then what the others wrote
// before can be read, past the first-level cache (__ldcg). `counter` is zero between
// kernels: the last one sets it back.
__device__ inline bool last_to_come(int32_t* counter, int blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t before = 0;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    last = before == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

// Until `place` is at least `least`: then what was written before it became so can be read. The
// last look alone empties the first-level cache.
__device__ inline void wait_for(const int32_t* place, int least) {
  int32_t value = 0;
  do {
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  } while (value < least);
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
}

// Blocks of one kernel that wait for what each other wrote. All have to be on the device together:
// no more than resident_blocks(). `counter` is zero between kernels: the last one to leave sets it
// back. What others wrote is read with plain loads after wait_for_all() and, by threads that meet
// the one that waited, after that; but no place of it may have been read in this kernel before.
struct Meeting {
  int32_t* counter;
  int blocks;
  // By one thread of each block, once all that the block has to show is written and its threads
  // have met.
  __device__ void arrive() const {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  }
  // By one thread of each block that has arrived.
  __device__ void wait_for_all() const { wait_for(counter, blocks); }
  // By the same thread, at the block's end.
  __device__ void leave() const {
    if (atomicAdd(counter, 1) == 2 * blocks - 1) *counter = 0;
  }
};

// Whether the current device starts kernels in this way.
inline bool starts_early() {
  static const bool early = [] {
    int device = 0;
    int major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  }();
  return early;
}

// The runtime keeps an error, too, for Device::check().
template <typename... Parameters, typename... Arguments>
cudaError_t start(Stream stream, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                  size_t shared_bytes, Arguments&&... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = starts_early() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Lets a kernel have so much shared memory; the processors of the device.
template <auto kKernel>
unsigned one_block_each(int shared_bytes) {
  static const unsigned processors = [&] {
    int device = 0;
    int count = 1;
    static_cast<void>(cudaGetDevice(&device));
    static_cast<void>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    static_cast<void>(
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    return static_cast<unsigned>(count);
  }();
  return processors;
}

// Blocks of a kernel that the device holds at a time.
template <auto kKernel>
unsigned resident_blocks(int threads, int shared_bytes) {
  static const unsigned each = [&] {
    int blocks = 1;
    one_block_each<kKernel>(shared_bytes);
    static_cast<void>(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kKernel, threads, static_cast<size_t>(shared_bytes)));
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks);
  }();
  return each * one_block_each<kKernel>(shared_bytes);
}

}  // namespace lagoon::kernels::cuda
