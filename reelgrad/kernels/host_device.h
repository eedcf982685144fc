// Functions that cpu/ and cuda/ share.
#pragma once

#ifdef __CUDACC__
#define REELGRAD_HD __host__ __device__ __forceinline__
#else
#define REELGRAD_HD inline
#endif
