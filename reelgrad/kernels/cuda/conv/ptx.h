// Hopper's instructions that CUDA C++ has no name for: barriers in shared memory, the copy engine (TMA), warpgroup
// registers. Addresses of shared memory are 32 bits.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace reelgrad::cuda::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialised barriers known to the copy engine; a __syncthreads() follows.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Bounded: a mistake ends in an error, seconds later, and not in a card that hangs.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t phase) {
  constexpr int kMostTries = 1 << 22;
  for (int i = 0; i < kMostTries; ++i) {
    std::uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
    if (done) return;
  }
  __trap();
}

// Contiguous bytes, a multiple of 16, from global to shared memory.
__device__ __forceinline__ void load_bytes(std::uint32_t to, const void* from, std::uint32_t bytes,
                                           std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The box of a tensor map that begins at channel c of pixel (x, y) of image n. What lies outside reads as zero.
__device__ __forceinline__ void load_box(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier, int c, int x,
                                         int y, int n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(n)
      : "memory");
}

// What lies outside is not written.
__device__ __forceinline__ void store_box(const CUtensorMap& map, std::uint32_t from, int c, int x, int y, int n) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(from), "r"(c), "r"(x), "r"(y), "r"(n)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// This thread's stores have read their shared memory, which may be written again.
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void wait_stores_done() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Before a barrier: what this thread wrote to shared memory is seen by the copy engine and the tensor cores.
__device__ __forceinline__ void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Named barriers; 0 is __syncthreads(). Whole warps come to them, whose threads may have parted before.
__device__ __forceinline__ void sync(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void arrive(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Moves registers between warpgroups; each role calls one of them first.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic launch: nothing before it may read what earlier kernels of the stream write; and the next kernel may
// start, as far as its own wait.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900  // before, kernels do not overlap
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Four 8×8 matrices of 16-bit elements, transposed: a fragment's rows become bytes that lie together.
__device__ __forceinline__ void store_transposed(std::uint32_t to, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void load_transposed(std::uint32_t from, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

}  // namespace reelgrad::cuda::ptx
