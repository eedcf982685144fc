#include "reelgrad/nn/host_threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

namespace reelgrad {

// Not at::set_num_threads(), which every thread that is new to torch would inherit. A thread's first look makes torch
// set its number: it comes before ours.
HostThreads::HostThreads(int count) : before_(at::get_num_threads()) {
  omp_set_num_threads(count);
}

HostThreads::~HostThreads() {
  omp_set_num_threads(before_);
}

}  // namespace reelgrad
