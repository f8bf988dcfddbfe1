// Blocks of a cluster, which read and write each other's shared memory: compute capability 9.0 and
// up, elsewhere nothing. PTX ISA: "barrier.cluster", "mapa", "st.async", "mbarrier".
#pragma once

#include <cstdint>

namespace lagoon::kernels::cuda {

// All blocks of a cluster are there, and have come to the same place. It orders nothing: of what
// was written before, only barriers of open_barrier(), which fences them, can be used by others.
__device__ inline void meet_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::
                   : "memory");
#endif
}
__device__ inline uint32_t map_shared(uint32_t address, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
  return address;
}
// To shared memory of another block, and counts the bytes at a barrier there.
__device__ inline void give(uint32_t to, uint32_t barrier, float x, float y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(x), "f"(y), "r"(barrier)
      : "memory");
#endif
}
// Barriers that wait for bytes, once.
__device__ inline void open_barrier(uint32_t barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier)
      : "memory");
#endif
}
__device__ inline void expect_bytes(uint32_t barrier, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
__device__ inline void wait_for_bytes(uint32_t barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  do {
    asm volatile(
        "{.reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], 0;\n"
        "selp.u32 %0, 1, 0, done;}"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  } while (done == 0);
#endif
}

}  // namespace lagoon::kernels::cuda
