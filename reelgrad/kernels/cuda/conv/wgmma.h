// The tensor cores' warpgroup instructions: d[64 × N] (+)= a[64 × 16] b[16 × N], a and b in shared memory in the
// 128-byte swizzle. Thread t of the warpgroup holds, of row 16 (t / 32) + (t % 32) / 4 and of the one 8 below, columns
// 8 j + 2 (t % 4) and the next: d[4 j], d[4 j + 1], and d[4 j + 2], d[4 j + 3].
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace reelgrad::cuda::wgmma {

// Where a matrix lies: its first byte, the step between groups of 8 rows of 128 bytes, and, where 128 bytes do not
// hold a row, the step to the rest of it. The swizzle works on absolute addresses, so that any multiple of 128 bytes
// can be a start or a step while the base offset stays 0.
__device__ __forceinline__ std::uint64_t matrix(std::uint32_t address, std::uint32_t group_bytes,
                                                std::uint32_t rest_bytes = 16) {
  constexpr std::uint64_t kSwizzle128 = 1ull << 62;
  return ((address & 0x3FFFF) >> 4) | static_cast<std::uint64_t>(rest_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(group_bytes >> 4) << 32 | kSwizzle128;
}

// What is added to a matrix to move it by `bytes`.
__device__ constexpr std::uint64_t moved(std::uint32_t bytes) {
  return bytes >> 4;
}

// The instructions are for whole warps, whose threads may have parted before.
__device__ __forceinline__ void begin() {
  __syncwarp();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most kPending committed groups are under way.
template <int kPending>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Until all committed groups have ended; then `d` is what they made. The compiler knows of no tie between the wait and
// registers, and must not read them before it.
template <int kCount>
__device__ __forceinline__ void finish(float (&d)[kCount]) {
  wait<0>();
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Operands of inline assembly have to be spelt out.
#define REELGRAD_R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define REELGRAD_R8(i) REELGRAD_R4(i), REELGRAD_R4(i + 4)
#define REELGRAD_R16(i) REELGRAD_R8(i), REELGRAD_R8(i + 8)
#define REELGRAD_R32(i) REELGRAD_R16(i), REELGRAD_R16(i + 16)
#define REELGRAD_R64(i) REELGRAD_R32(i), REELGRAD_R32(i + 32)
#define REELGRAD_D8_NAMES "%0, %1, %2, %3, %4, %5, %6, %7"
#define REELGRAD_D8 REELGRAD_R8(0)
#define REELGRAD_D16_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REELGRAD_D16 REELGRAD_R16(0)
#define REELGRAD_D24_NAMES                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23"
#define REELGRAD_D24 REELGRAD_R16(0), REELGRAD_R8(16)
#define REELGRAD_D96_NAMES                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "           \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
  "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REELGRAD_D96 REELGRAD_R64(0), REELGRAD_R32(64)
#define REELGRAD_D128_NAMES                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                         \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "               \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "               \
  "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "               \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "               \
  "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
  "%119, "                                                                                                             \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define REELGRAD_D128 REELGRAD_R64(0), REELGRAD_R64(64)

// `ab`: the operands' numbers; `majors`: 0 where a row's elements lie together, 1 where a column's do.
#define REELGRAD_WGMMA(n, type, registers, ab, majors)                                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ab(2) ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
                                                         "." type " {" registers##_NAMES                              \
               "}, " ab(0) ", " ab(1) ", p, 1, 1, " majors ";\n}\n"                                                   \
               : registers                                                                                            \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))

#define REELGRAD_N8(k) REELGRAD_N8_##k
#define REELGRAD_N8_0 "%8"
#define REELGRAD_N8_1 "%9"
#define REELGRAD_N8_2 "%10"
#define REELGRAD_N16(k) REELGRAD_N16_##k
#define REELGRAD_N16_0 "%16"
#define REELGRAD_N16_1 "%17"
#define REELGRAD_N16_2 "%18"
#define REELGRAD_N24(k) REELGRAD_N24_##k
#define REELGRAD_N24_0 "%24"
#define REELGRAD_N24_1 "%25"
#define REELGRAD_N24_2 "%26"
#define REELGRAD_N96(k) REELGRAD_N96_##k
#define REELGRAD_N96_0 "%96"
#define REELGRAD_N96_1 "%97"
#define REELGRAD_N96_2 "%98"
#define REELGRAD_N128(k) REELGRAD_N128_##k
#define REELGRAD_N128_0 "%128"
#define REELGRAD_N128_1 "%129"
#define REELGRAD_N128_2 "%130"

template <class T>
__device__ __forceinline__ void multiply(float (&d)[8], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, __half>)
    REELGRAD_WGMMA(16, "f16", REELGRAD_D8, REELGRAD_N8, "0, 0");
  else
    REELGRAD_WGMMA(16, "bf16", REELGRAD_D8, REELGRAD_N8, "0, 0");
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[16], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, __half>)
    REELGRAD_WGMMA(32, "f16", REELGRAD_D16, REELGRAD_N16, "0, 0");
  else
    REELGRAD_WGMMA(32, "bf16", REELGRAD_D16, REELGRAD_N16, "0, 0");
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[24], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, __half>)
    REELGRAD_WGMMA(48, "f16", REELGRAD_D24, REELGRAD_N24, "0, 0");
  else
    REELGRAD_WGMMA(48, "bf16", REELGRAD_D24, REELGRAD_N24, "0, 0");
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[128], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, __half>)
    REELGRAD_WGMMA(256, "f16", REELGRAD_D128, REELGRAD_N128, "0, 0");
  else
    REELGRAD_WGMMA(256, "bf16", REELGRAD_D128, REELGRAD_N128, "0, 0");
}

// With both matrices the other way: a's columns and b's rows lie together.
template <class T>
__device__ __forceinline__ void multiply_transposed(float (&d)[96], std::uint64_t a, std::uint64_t b, bool add) {
  if constexpr (std::is_same_v<T, __half>)
    REELGRAD_WGMMA(192, "f16", REELGRAD_D96, REELGRAD_N96, "1, 1");
  else
    REELGRAD_WGMMA(192, "bf16", REELGRAD_D96, REELGRAD_N96, "1, 1");
}

#undef REELGRAD_R4
#undef REELGRAD_R8
#undef REELGRAD_R16
#undef REELGRAD_R32
#undef REELGRAD_R64
#undef REELGRAD_WGMMA
#undef REELGRAD_D8_NAMES
#undef REELGRAD_D8
#undef REELGRAD_N8
#undef REELGRAD_N8_0
#undef REELGRAD_N8_1
#undef REELGRAD_N8_2
#undef REELGRAD_D16_NAMES
#undef REELGRAD_D16
#undef REELGRAD_N16
#undef REELGRAD_N16_0
#undef REELGRAD_N16_1
#undef REELGRAD_N16_2
#undef REELGRAD_D24_NAMES
#undef REELGRAD_D24
#undef REELGRAD_N24
#undef REELGRAD_N24_0
#undef REELGRAD_N24_1
#undef REELGRAD_N24_2
#undef REELGRAD_D96_NAMES
#undef REELGRAD_D96
#undef REELGRAD_N96
#undef REELGRAD_N96_0
#undef REELGRAD_N96_1
#undef REELGRAD_N96_2
#undef REELGRAD_D128_NAMES
#undef REELGRAD_D128
#undef REELGRAD_N128
#undef REELGRAD_N128_0
#undef REELGRAD_N128_1
#undef REELGRAD_N128_2

}  // namespace reelgrad::cuda::wgmma
