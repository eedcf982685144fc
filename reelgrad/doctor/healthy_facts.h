// For tests: a machine on which everything works.
#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

inline Facts healthy_facts() {
  return {.os = "Debian GNU/Linux 12 (bookworm)",
          .kernel = "6.1.0-30-amd64",
          .pci_cards = 1,
          .driver_version = "580.65.06",
          .driver_cuda = 13000,
          .devices = {{.index = 0,
                       .name = "NVIDIA GeForce RTX 4090",
                       .uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff",
                       .memory_total_mb = 24564,
                       .memory_free_mb = 23000,
                       .compute_major = 8,
                       .compute_minor = 9}},
          .torch = {.dir = "/opt/env/torch", .version = "2.11.0+cu130", .cuda = "13.0"},
          .vapoursynth = {.core = "R81",
                          .api = "4.3",
                          .vsscript = "/opt/env/vapoursynth/libvsscript.so",
                          .python = "/opt/env/bin/python",
                          .source_plugins = {"bs"}},
          .ffmpeg_version = "5.1.6",
          .build_torch = "2.11.0+cu130",
          .build_architectures = "80,90a-real"};
}

}  // namespace reelgrad
