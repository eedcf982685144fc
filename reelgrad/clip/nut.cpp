#include "reelgrad/clip/nut.h"

#include <array>
#include <string_view>

namespace reelgrad {
namespace {

// ---- The specification's constants ----

constexpr std::string_view kFileId{"nut/multimedia container\0", 25};
constexpr std::uint64_t kMainStartcode = 0x4E4D7A561F5F04AD;
constexpr std::uint64_t kStreamStartcode = 0x4E5311405BF2F9DB;
constexpr std::uint64_t kSyncpointStartcode = 0x4E4BE4ADEECA4569;
constexpr std::uint64_t kInfoStartcode = 0x4E49AB68B596BA78;
constexpr int kVersion = 3;
constexpr int kMaxDistance = 32768;
constexpr int kVideoClass = 0;

enum FrameFlag : std::uint64_t {
  kKey = 1 << 0,
  kCodedPts = 1 << 3,
  kSizeMsb = 1 << 5,
  kChecksum = 1 << 6,
  kInvalid = 1 << 13,
};

// Every frame is alike, a key frame with its full timestamp, size and a checksum, so one frame code is enough.
constexpr std::uint8_t kFrameCode = 1;
constexpr std::uint64_t kFrameFlags = kKey | kCodedPts | kSizeMsb | kChecksum;

// ---- Its data types ----

// CRC-32 with generator 0x104C11DB7, most significant bit first, starting at 0, not inverted.
constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte << 24;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ (crc & 0x80000000 ? 0x04C11DB7 : 0);
    table[byte] = crc;
  }
  return table;
}();

class Packet {
 public:
  // Big-endian, `bytes` of them.
  Packet& u(std::uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) bytes_.push_back(std::byte(value >> shift));
    return *this;
  }
  // v: seven bits a byte, the high bit says that more follow.
  Packet& v(std::uint64_t value) {
    int shift = 0;
    while (value >> shift >= 128) shift += 7;
    for (; shift > 0; shift -= 7) bytes_.push_back(std::byte(0x80 | (value >> shift & 0x7F)));
    bytes_.push_back(std::byte(value & 0x7F));
    return *this;
  }
  // s: 0, 1, -1, 2, -2, … as v 0, 1, 2, 3, 4.
  Packet& s(std::int64_t value) { return v(value > 0 ? 2 * value - 1 : -2 * value); }
  Packet& vb(std::string_view data) { return v(data.size()).raw(data); }
  Packet& raw(std::string_view data) {
    for (const char c : data) bytes_.push_back(std::byte(c));
    return *this;
  }
  Packet& append_checksum() { return u(crc(), 4); }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::uint32_t crc() const {
    std::uint32_t crc = 0;
    for (const std::byte byte : bytes_)
      crc = (crc << 8) ^ kCrcTable[(crc >> 24) ^ std::to_integer<std::uint32_t>(byte)];
    return crc;
  }

  std::vector<std::byte> bytes_;
};

// packet_header, body, packet_footer. Our bodies stay below the 4096 bytes that would need a header checksum.
Packet framed(std::uint64_t startcode, Packet body) {
  body.append_checksum();
  Packet packet;
  packet.u(startcode, 8).v(body.bytes().size());
  return packet.raw({reinterpret_cast<const char*>(body.bytes().data()), body.bytes().size()});
}

// `count` entries of the frame code table, all six fields given.
void frame_codes(Packet& header, std::uint64_t flags, int count) {
  constexpr int kFields = 6;
  header.v(flags).v(kFields);
  header.s(0);  // pts_delta: every frame codes its own
  header.v(1);  // data_size_mul
  header.v(0);  // stream
  header.v(0);  // data_size_lsb
  header.v(0);  // reserved_count
  header.v(count);
}

Packet main_header(const NutStream& stream) {
  Packet header;
  header.v(kVersion).v(1).v(kMaxDistance);      // one stream
  header.v(1).v(1).v(stream.ticks_per_second);  // one time base, 1 / ticks_per_second
  frame_codes(header, kInvalid, kFrameCode);
  frame_codes(header, kFrameFlags, 1);
  // The table's 256 entries less those before and less 'N', which a reader skips by itself.
  frame_codes(header, kInvalid, 256 - kFrameCode - 1 - 1);
  return header.v(0).v(0);  // no elision headers, no main_flags
}

Packet stream_header(const NutStream& stream) {
  Packet header;
  header.v(0).v(kVideoClass).vb(stream.fourcc);
  header.v(0);                        // time base
  header.v(0);                        // msb_pts_shift: timestamps are always coded whole
  header.v(stream.ticks_per_second);  // max_pts_distance without a checksum
  header.v(0).v(0).vb({});            // no decode delay, no flags, no codec data
  header.v(stream.width).v(stream.height);
  const bool known = stream.sample_aspect.num > 0 && stream.sample_aspect.den > 0;
  header.v(known ? stream.sample_aspect.num : 0).v(known ? stream.sample_aspect.den : 0);
  return header.v(0);  // colours are told by other means
}

Packet frame_rate_info(Rational fps) {
  constexpr int kUtf8 = -1;
  Packet info;
  info.v(1).s(0).v(0).v(0);  // of stream 0, not a chapter
  info.v(1).vb("r_frame_rate").s(kUtf8).vb(std::to_string(fps.num) + "/" + std::to_string(fps.den));
  return info;
}

}  // namespace

NutWriter::NutWriter(const NutStream& stream, Output output) : output_(std::move(output)) {
  write(std::as_bytes(std::span(kFileId)));
  write(framed(kMainStartcode, main_header(stream)).bytes());
  write(framed(kStreamStartcode, stream_header(stream)).bytes());
  if (stream.fps.num > 0) write(framed(kInfoStartcode, frame_rate_info(stream.fps)).bytes());
}

void NutWriter::write_frame(std::int64_t pts, std::span<const std::byte> data) {
  // A syncpoint before every frame: raw frames are mostly larger than the largest distance between two of them.
  const std::int64_t back = last_syncpoint_ < 0 ? 0 : (position_ - last_syncpoint_) / 16;
  last_syncpoint_ = position_;
  write(framed(kSyncpointStartcode, Packet().v(pts).v(back)).bytes());

  Packet frame;
  frame.u(kFrameCode, 1).v(pts + 1).v(data.size());  // whole timestamps are coded with 1 << msb_pts_shift added
  write(frame.append_checksum().bytes());
  write(data);
}

void NutWriter::write(std::span<const std::byte> bytes) {
  output_(bytes);
  position_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace reelgrad
