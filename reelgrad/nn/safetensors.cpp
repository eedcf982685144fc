// The safetensors format: a 64-bit little-endian length, that many bytes of JSON, then the tensors' bytes back to back.
// Source: the format's specification, https://github.com/huggingface/safetensors#format
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/mapped_file.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored as they lie in memory");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxDims = 32;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DtypeName {
  std::string_view name;
  torch::ScalarType type;
};
constexpr std::array kDtypes{
    DtypeName{"BOOL", torch::kBool},
    DtypeName{"U8", torch::kUInt8},
    DtypeName{"I8", torch::kInt8},
    DtypeName{"F8_E5M2", torch::kFloat8_e5m2},
    DtypeName{"F8_E4M3", torch::kFloat8_e4m3fn},
    DtypeName{"I16", torch::kInt16},
    DtypeName{"U16", torch::kUInt16},
    DtypeName{"F16", torch::kFloat16},
    DtypeName{"BF16", torch::kBFloat16},
    DtypeName{"I32", torch::kInt32},
    DtypeName{"U32", torch::kUInt32},
    DtypeName{"F32", torch::kFloat32},
    DtypeName{"F64", torch::kFloat64},
    DtypeName{"I64", torch::kInt64},
    DtypeName{"U64", torch::kUInt64},
    DtypeName{"C64", torch::kComplexFloat},
};

struct Entry {
  std::string name;
  std::string dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::vector<std::uint64_t> offsets;  // begin, end; counted from the first byte after the header
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Builds a Header from the JSON parser's events and refuses all that the format doesn't allow where it is met: a DOM
// would silently keep the last of two equal keys.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header take() { return std::move(header_); }
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        return enter(State::top);
      case State::top_value:
        return enter(header_key_ == kMetadataKey ? State::metadata : State::entry);
      default:
        return refuse("an object where none is allowed");
    }
  }

  bool end_object() override {
    if (state_ == State::top) return enter(State::done);
    if (state_ == State::entry && !finish_entry()) return false;
    return enter(State::top);
  }

  bool key(string_t& text) override {
    switch (state_) {
      case State::top:
        header_key_ = text;
        if (!names_.insert(text).second) return refuse("a duplicate key");
        if (text != kMetadataKey) header_.entries.push_back({.name = text});
        fields_.clear();
        return enter(State::top_value);
      case State::metadata:
        field_ = text;
        if (header_.metadata.contains(text)) return refuse(fmt::format("a duplicate key \"{}\"", text));
        return enter(State::metadata_value);
      default:
        field_ = text;
        if (!fields_.insert(text).second) return refuse(fmt::format("a duplicate key \"{}\"", text));
        if (text != "dtype" && text != "shape" && text != "data_offsets") {
          return refuse(fmt::format("an unknown field \"{}\"", text));
        }
        return enter(State::entry_value);
    }
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_value) {
      header_.metadata.emplace(field_, text);
      return enter(State::metadata);
    }
    if (state_ != State::entry_value || field_ != "dtype") return refuse("a string where none is allowed");
    entry().dtype = text;
    return enter(State::entry);
  }

  bool start_array(std::size_t) override {
    if (state_ != State::entry_value || field_ == "dtype") return refuse("a list where none is allowed");
    if (field_ == "shape") entry().shape.emplace();
    return enter(State::list);
  }

  bool end_array() override { return enter(State::entry); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::list) return refuse("a number where none is allowed");
    std::vector<std::uint64_t>& numbers = field_ == "shape" ? *entry().shape : entry().offsets;
    if (numbers.size() == kMaxDims) return refuse(fmt::format("{} has more than {} numbers", field_, kMaxDims));
    numbers.push_back(value);
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return refuse(fmt::format("{}: {} is negative", field_, value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse(fmt::format("{}: {} is no whole number below 2^64", field_, text));
  }
  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    problem_ = fmt::format("the header is not JSON (byte {} of it)", position);
    return false;
  }

 private:
  enum class State { start, top, top_value, metadata, metadata_value, entry, entry_value, list, done };

  Entry& entry() { return header_.entries.back(); }

  bool enter(State state) {
    state_ = state;
    return true;
  }

  bool refuse(const std::string& what) {
    problem_ =
        header_key_.empty() ? fmt::format("the header has {}", what) : fmt::format("\"{}\": {}", header_key_, what);
    return false;
  }

  bool finish_entry() {
    if (!fields_.contains("dtype")) return refuse("dtype is missing");
    if (!fields_.contains("shape")) return refuse("shape is missing");
    if (entry().offsets.size() != 2) return refuse("data_offsets is not a list of two numbers");
    return true;
  }

  Header header_;
  std::string problem_;
  State state_ = State::start;
  std::string header_key_, field_;
  std::set<std::string> names_, fields_;
};

torch::ScalarType scalar_type(const Entry& entry, const std::string& path) {
  const auto* row = std::ranges::find(kDtypes, entry.dtype, &DtypeName::name);
  if (row == kDtypes.end()) fail(fmt::format("{}: \"{}\": unknown dtype \"{}\"", path, entry.name, entry.dtype));
  return row->type;
}

std::string_view stored_dtype(const torch::Tensor& tensor, const std::string& path) {
  const auto* row = std::ranges::find(kDtypes, tensor.scalar_type(), &DtypeName::type);
  if (row == kDtypes.end()) {
    fail(fmt::format("{}: safetensors has no name for the type {}", path, torch::toString(tensor.scalar_type())));
  }
  return row->name;
}

std::uint64_t bytes_of(const Entry& entry, const std::string& path) {
  std::uint64_t bytes = torch::elementSize(scalar_type(entry, path));
  bool empty = false;
  for (const std::uint64_t size : *entry.shape) {
    empty |= size == 0;
    // torch multiplies the sizes of empty tensors, too.
    const bool too_large = __builtin_mul_overflow(bytes, std::max<std::uint64_t>(size, 1), &bytes) ||
                           bytes > std::numeric_limits<std::int64_t>::max();
    if (too_large) {
      fail(fmt::format("{}: \"{}\": shape [{}] overflows", path, entry.name, fmt::join(*entry.shape, ", ")));
    }
  }
  return empty ? 0 : bytes;
}

// Every byte after the header belongs to one tensor.
void check_layout(const Header& header, std::uint64_t data_bytes, const std::string& path) {
  std::vector<const Entry*> order;
  for (const Entry& entry : header.entries) {
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    const auto where = [&] { return fmt::format("{}: \"{}\": data_offsets [{}, {}]", path, entry.name, begin, end); };
    if (begin > end) fail(fmt::format("{}: begin after end", where()));
    if (end > data_bytes) fail(fmt::format("{}: beyond the file's {} bytes of data", where(), data_bytes));
    if (const std::uint64_t needed = bytes_of(entry, path); end - begin != needed) {
      fail(fmt::format("{}: {} bytes, but {} [{}] takes {}", where(), end - begin, entry.dtype,
                       fmt::join(*entry.shape, ", "), needed));
    }
    order.push_back(&entry);
  }
  std::ranges::sort(order, {}, [](const Entry* entry) { return std::pair(entry->offsets[0], entry->offsets[1]); });
  std::uint64_t position = 0;
  for (const Entry* entry : order) {
    if (entry->offsets[0] != position) {
      fail(fmt::format("{}: \"{}\": data_offsets begin at {}, which {} (expected {})", path, entry->name,
                       entry->offsets[0], entry->offsets[0] < position ? "overlaps another tensor" : "leaves a hole",
                       position));
    }
    position = entry->offsets[1];
  }
  if (position != data_bytes) {
    fail(fmt::format("{}: {} bytes after the last tensor belong to none", path, data_bytes - position));
  }
}

// A file whose header has been read and checked.
struct OpenFile {
  std::shared_ptr<MappedFile> file;
  Header header;
  std::uint64_t data_start = 0;
};

OpenFile open_checked(const std::filesystem::path& path) {
  const std::string name = path.string();
  OpenFile open{.file = std::make_shared<MappedFile>(path)};
  const std::span<std::byte> bytes = open.file->bytes();

  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) fail(fmt::format("{}: no safetensors file: {} bytes", name, bytes.size()));
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail(fmt::format("{}: no safetensors file: header length {} is above {}", name, header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > bytes.size() - sizeof header_bytes) {
    fail(fmt::format("{}: header length {}, but the file has only {} bytes: cut off, or no safetensors file", name,
                     header_bytes, bytes.size()));
  }
  open.data_start = sizeof header_bytes + header_bytes;

  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes, header_bytes);
  HeaderReader reader;
  if (!text.starts_with('{')) fail(fmt::format("{}: the header is not JSON (no {{ at its start)", name));
  if (!nlohmann::json::sax_parse(text, &reader)) fail(fmt::format("{}: {}", name, reader.problem()));
  open.header = reader.take();
  check_layout(open.header, bytes.size() - open.data_start, name);
  return open;
}

// A view of the mapped file where its bytes are aligned, which they need not be.
torch::Tensor map_tensor(const OpenFile& open, const Entry& entry, const std::string& path) {
  const std::vector<std::int64_t> shape(entry.shape->begin(), entry.shape->end());
  const torch::ScalarType type = scalar_type(entry, path);
  const std::uint64_t bytes = entry.offsets[1] - entry.offsets[0];
  if (bytes == 0) return torch::empty(shape, type);
  std::byte* start = open.file->bytes().data() + open.data_start + entry.offsets[0];
  if (reinterpret_cast<std::uintptr_t>(start) % torch::elementSize(type) != 0) {
    const torch::Tensor copy = torch::empty(shape, type);
    std::memcpy(copy.data_ptr(), start, bytes);
    return copy;
  }
  // A bool that is neither 0 nor 1 must not come into being.
  const bool is_bool = type == torch::kBool;
  const torch::Tensor view = torch::from_blob(
      start, shape, [file = open.file](void*) {}, is_bool ? torch::kUInt8 : type);
  return is_bool ? view.ne(0) : view;
}

struct Layout {
  std::string header;
  std::vector<std::size_t> order;  // of the tensors' bytes
  std::uint64_t data_bytes = 0;
};

// The header lists the tensors as given; their bytes lie by falling element size, so that each is aligned.
Layout lay_out(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
               const std::string& path) {
  Layout layout;
  for (std::size_t i = 0; i < tensors.size(); ++i) layout.order.push_back(i);
  std::ranges::stable_sort(layout.order, std::ranges::greater(),
                           [&](std::size_t i) { return tensors[i].second.element_size(); });
  std::vector<std::array<std::uint64_t, 2>> offsets(tensors.size());
  for (const std::size_t i : layout.order) {
    const std::uint64_t begin = layout.data_bytes;
    layout.data_bytes += tensors[i].second.nbytes();
    offsets[i] = {begin, layout.data_bytes};
  }

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (name == kMetadataKey || header.contains(name)) fail(fmt::format("{}: two tensors named \"{}\"", path, name));
    header[name] = {
        {"dtype", stored_dtype(tensor, path)}, {"shape", tensor.sizes().vec()}, {"data_offsets", offsets[i]}};
  }
  layout.header = header.dump();
  constexpr std::size_t kAlignment = 8;
  while (layout.header.size() % kAlignment != 0) layout.header.push_back(' ');
  if (layout.header.size() > kMaxHeaderBytes) fail(fmt::format("{}: a header of {} bytes", path, layout.header.size()));
  return layout;
}

}  // namespace

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  OpenFile open = open_checked(path);
  SafetensorsFile result{.metadata = std::move(open.header.metadata)};
  for (const Entry& entry : open.header.entries) {
    result.tensors.emplace_back(entry.name, map_tensor(open, entry, path.string()));
  }
  return result;
}

std::vector<TensorEntry> read_safetensors_header(const std::filesystem::path& path,
                                                 std::map<std::string, std::string>* metadata) {
  OpenFile open = open_checked(path);
  std::vector<TensorEntry> entries;
  for (Entry& entry : open.header.entries) {
    entries.push_back({std::move(entry.name), std::move(entry.dtype), {entry.shape->begin(), entry.shape->end()}});
  }
  if (metadata != nullptr) *metadata = std::move(open.header.metadata);
  return entries;
}

std::string dtype_name(const torch::Tensor& tensor) {
  const auto* row = std::ranges::find(kDtypes, tensor.scalar_type(), &DtypeName::type);
  return row == kDtypes.end() ? torch::toString(tensor.scalar_type()) : std::string(row->name);
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const Layout layout = lay_out(tensors, metadata, path.string());
  const std::uint64_t header_bytes = layout.header.size();
  const std::uint64_t total_bytes = sizeof header_bytes + header_bytes + layout.data_bytes;

  PendingFile pending(path);
  std::ofstream stream(pending.path(), std::ios::binary);
  errno = 0;
  stream.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  stream.write(layout.header.data(), static_cast<std::streamsize>(header_bytes));
  for (const std::size_t i : layout.order) {
    const torch::Tensor bytes = tensors[i].second.detach().to(torch::kCPU).contiguous();
    stream.write(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
    if (!stream) break;  // keeps errno
  }
  stream.close();
  if (!stream) fail(fmt::format("{}: cannot write {} bytes: {}", path.string(), total_bytes, errno_name(errno)));
  pending.commit();
}

}  // namespace reelgrad
