#include "reelgrad/frames/gather_table.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {
namespace {

constexpr std::chrono::microseconds kPoll{20};

}  // namespace

struct GatherTable::Impl {
  // What the host writes; free again when its copy to the card is over.
  struct Slot {
    torch::Tensor memory;  // uint8 [bytes], page-locked where the system grants it
    std::optional<c10::Event> copied;
  };

  Impl(std::size_t job_count, torch::Device on)
      : jobs(job_count), card(on), bytes(cuda::gather_table_bytes(job_count)) {
    table = torch::empty({static_cast<std::int64_t>(bytes)}, torch::dtype(torch::kUInt8).device(card));
    for (Slot& slot : slots) slot.memory = staging_memory(bytes);
  }

  // Asking an event keeps the host out of the driver's locks, which waiting for it would hold.
  Slot& free_slot() {
    Slot& slot = slots[static_cast<std::size_t>(next++ % kBatchesAhead)];
    while (slot.copied && !slot.copied->query()) std::this_thread::sleep_for(kPoll);
    return slot;
  }

  std::size_t jobs;
  torch::Device card;
  std::size_t bytes;
  torch::Tensor table;  // uint8 [bytes], on the card
  std::array<Slot, kBatchesAhead> slots;
  std::int64_t next = 0;
  unsigned blocks = 0;  // of a launch; 0: nothing was sent yet
};

GatherTable::GatherTable(std::size_t jobs, torch::Device card) : impl_(std::make_unique<Impl>(jobs, card)) {}

GatherTable::~GatherTable() {
  for (Impl::Slot& slot : impl_->slots)
    if (slot.copied) slot.copied->synchronize();
}

void GatherTable::send(std::span<const SpecifiedJob> jobs) {
  Impl& my = *impl_;
  TORCH_CHECK(jobs.size() == my.jobs, "a table of ", my.jobs, " jobs was sent ", jobs.size());
  Impl::Slot& slot = my.free_slot();
  const unsigned blocks = cuda::write_gather_table(jobs, bytes_of(slot.memory));
  TORCH_CHECK(my.blocks == 0 || my.blocks == blocks, "the crops' sizes changed");
  my.blocks = blocks;
  const c10::cuda::CUDAGuard guard(my.card);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(my.card.index());
  C10_CUDA_CHECK(
      cudaMemcpyAsync(my.table.data_ptr(), slot.memory.data_ptr(), my.bytes, cudaMemcpyHostToDevice, stream));
  slot.copied.emplace(c10::DeviceType::CUDA);
  slot.copied->record(stream);
}

void GatherTable::launch() const {
  const c10::cuda::CUDAGuard guard(impl_->card);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(impl_->card.index());
  cuda::gather_table(bytes_of(impl_->table), impl_->jobs, impl_->blocks, stream);
}

}  // namespace reelgrad
