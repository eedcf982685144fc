// For tests: a machine on which everything works.
#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

inline Facts healthy_facts() {
  Facts facts;
  facts.system = {.os = "Debian GNU/Linux 12 (bookworm)",
                  .os_id = "debian",
                  .os_version = "12",
                  .kernel = "6.1.0-30-amd64",
                  .machine = "x86_64",
                  .glibc = "2.36",
                  .libstdcxx = "3.4.30",
                  .ram_mb = 64000,
                  .ram_free_mb = 48000,
                  .shm_mb = 32000,
                  .run_file_system = "ext4",
                  .run_free_mb = 500'000};
  facts.pci_cards = {{.address = "0000:01:00.0", .device_id = "2684", .bound_driver = "nvidia"}};
  facts.modules = {
      .nvidia_loaded = true, .nvidia_uvm_loaded = true, .nvidia_on_disk = true, .nvidia_version = "580.65.06"};
  facts.device_nodes = {{.path = "/dev/nvidia0"}, {.path = "/dev/nvidiactl"}, {.path = "/dev/nvidia-uvm"}};
  facts.libraries = {{.name = "libcuda.so.1",
                      .path = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",
                      .version = "580.65.06",
                      .from = "ldconfig"}};
  facts.driver = {.outcome = Outcome::ok,
                  .library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",
                  .version = "580.65.06",
                  .cuda = 13000,
                  .init_code = 0,
                  .nvml_code = 0,
                  .nvml_cards = 1};
  facts.devices = {{.index = 0,
                    .name = "NVIDIA GeForce RTX 4090",
                    .uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff",
                    .pci_address = "0000:01:00.0",
                    .memory_total_mb = 24564,
                    .memory_free_mb = 23000,
                    .compute_major = 8,
                    .compute_minor = 9}};
  facts.torch = {.dir = "/opt/env/torch", .version = "2.11.0+cu130", .cuda = "13.0", .cuda_library = true};
  facts.vapoursynth = {.core = "R81",
                       .api = "4.3",
                       .vsscript = "/opt/env/vapoursynth/libvsscript.so",
                       .python = "/opt/env/bin/python",
                       .source_plugins = {"bs"}};
  facts.ffmpeg = {.path = "/usr/bin/ffmpeg", .version = "5.1.6"};
  facts.build = {.torch = "2.11.0+cu130", .architectures = "80,90a-real"};
  return facts;
}

}  // namespace reelgrad
