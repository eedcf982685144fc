#include "reelgrad/record/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>

#include "reelgrad/base/files.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  constexpr std::uint32_t kReversedCastagnoli = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedCastagnoli : 0);
    table[byte] = crc;
  }
  return table;
}

// TFRecord's: a checksum of bytes that hold checksums would be weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string record_of(const std::string& data) {
  const std::string length = little_endian(std::uint64_t{data.size()});
  return length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
}

// --- Protobuf: a field is its number and wire type, then its value ---

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value > 0x7F; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  bytes += static_cast<char>(value);
  return bytes;
}

std::string tag(int field, Wire wire) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

std::string bytes_field(int field, std::string_view bytes) {
  return tag(field, Wire::bytes) + varint(bytes.size()) + std::string(bytes);
}

std::string integer_field(int field, std::int64_t value) {
  return tag(field, Wire::varint) + varint(static_cast<std::uint64_t>(value));
}

std::string double_field(int field, double value) {
  return tag(field, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float_field(int field, double value) {
  return tag(field, Wire::fixed32) + little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

// --- tensorflow.Event ---

// Of wall_time and step; what happened follows.
std::string event_at(std::int64_t step) {
  return double_field(1, seconds_since_1970()) + integer_field(2, step);
}

std::string file_version() {
  return event_at(0) + bytes_field(3, "brain.Event:2");
}

// SessionLog.START: events of this step and later ones in older files are void.
std::string restart(std::int64_t step) {
  constexpr std::int64_t kStart = 1;
  return event_at(step) + bytes_field(7, integer_field(1, kStart));
}

std::string summary_value(const std::string& name, double value) {
  return bytes_field(1, bytes_field(1, name) + float_field(2, value));
}

fs::path new_file_in(const fs::path& folder) {
  const auto seconds = static_cast<std::int64_t>(seconds_since_1970());
  fs::path file;
  for (int n = 0; file.empty() || fs::exists(file); ++n) {
    file = folder / fmt::format("events.out.tfevents.{}.reelgrad{}", seconds, n == 0 ? "" : fmt::format(".{}", n));
  }
  return file;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const fs::path& folder, std::optional<std::int64_t> done_steps) : file_(new_file_in(folder)) {
  append(file_version());
  if (done_steps) append(restart(*done_steps + 1));
}

void EventFile::append(const std::string& event) const {
  append_bytes(file_, record_of(event));
}

void EventFile::add(std::int64_t step, const std::vector<Scalar>& scalars) const {
  std::string summary;
  for (const Scalar& scalar : scalars)
    if (std::isfinite(scalar.value)) summary += summary_value(scalar.tag, scalar.value);
  append(event_at(step) + bytes_field(5, summary));
}

void EventFile::add(const StepRecord& record) const {
  std::vector<Scalar> scalars{{"train/loss", record.loss},
                              {"train/lr", record.learning_rate},
                              {"train/it_per_s", record.steps_per_second},
                              {"train/data_wait", record.data_wait_share},
                              {"train/skipped", static_cast<double>(record.skipped)},
                              {"train/memory_mb", static_cast<double>(record.memory_mb)}};
  for (const auto& [name, value] : record.losses) scalars.push_back({"train/losses/" + name, value});
  if (record.discriminator) {
    const AdversarialRecord& other = *record.discriminator;
    for (const Scalar& scalar : std::vector<Scalar>{{"loss", other.loss},
                                                    {"real", other.real},
                                                    {"fake", other.fake},
                                                    {"right", other.right},
                                                    {"grad_norm", other.gradient_norm},
                                                    {"generator_grad_norm", other.generator_gradient_norm},
                                                    {"lr", other.learning_rate},
                                                    {"skipped", static_cast<double>(other.skipped)}}) {
      scalars.push_back({"discriminator/" + scalar.tag, scalar.value});
    }
    for (const auto& [name, value] : other.losses) scalars.push_back({"discriminator/losses/" + name, value});
  }
  add(record.step, scalars);
}

void EventFile::put(std::vector<Scalar>& scalars, const std::string& group, const QualityScores& scores) {
  scalars.insert(scalars.end(), {{group + "/psnr_rgb", scores.psnr_rgb},
                                 {group + "/psnr_y", scores.psnr_y},
                                 {group + "/ssim_rgb", scores.ssim_rgb},
                                 {group + "/ssim_y", scores.ssim_y}});
  if (scores.lpips) scalars.push_back({group + "/lpips", *scores.lpips});
  if (scores.dists) scalars.push_back({group + "/dists", *scores.dists});
}

void EventFile::add(const ValidationRecord& record) const {
  std::vector<Scalar> scalars;
  put(scalars, "validation", record.ours);
  put(scalars, "bicubic", record.bicubic);
  add(record.step, scalars);
}

}  // namespace reelgrad
