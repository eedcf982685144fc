// The layout of torch.save's files, as far as it is not the pickle's or the zip's:
// - zip: NAME/data.pkl, NAME/byteorder ("little" or "big"; absent in early files) and the storages as NAME/data/KEY;
// - before PyTorch 1.6: four pickles (a magic number, the version 1001, the writer's machine, the object), the list of
// the
//   storages' keys, and for each its count of elements (64 bits) and its bytes.
// A tensor is a call of torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, …), a storage the persistent
// ("storage", its type, key, device, count of elements).
#include "reelgrad/nn/torch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/mapped_file.h"
#include "reelgrad/base/model_file.h"
#include "reelgrad/base/text.h"
#include "reelgrad/nn/pickle_reader.h"

namespace reelgrad {
namespace {

using Kind = PickleKind;
using Bytes = std::span<std::byte>;

struct StorageType {
  std::string_view storage;  // its class in torch
  std::string_view dtype;    // what an untyped storage's tensors call it
  torch::ScalarType type;
};
constexpr std::array kStorageTypes{
    StorageType{"FloatStorage", "float32", torch::kFloat32},
    StorageType{"HalfStorage", "float16", torch::kFloat16},
    StorageType{"BFloat16Storage", "bfloat16", torch::kBFloat16},
    StorageType{"DoubleStorage", "float64", torch::kFloat64},
    StorageType{"LongStorage", "int64", torch::kInt64},
    StorageType{"IntStorage", "int32", torch::kInt32},
    StorageType{"ShortStorage", "int16", torch::kInt16},
    StorageType{"CharStorage", "int8", torch::kInt8},
    StorageType{"ByteStorage", "uint8", torch::kUInt8},
    StorageType{"BoolStorage", "bool", torch::kBool},
    StorageType{"ComplexFloatStorage", "complex64", torch::kComplexFloat},
    StorageType{"ComplexDoubleStorage", "complex128", torch::kComplexDouble},
    StorageType{"", "float8_e5m2", torch::kFloat8_e5m2},
    StorageType{"", "float8_e4m3fn", torch::kFloat8_e4m3fn},
    StorageType{"", "uint16", torch::kUInt16},
    StorageType{"", "uint32", torch::kUInt32},
    StorageType{"", "uint64", torch::kUInt64},
};

// The dicts that trainers put weights into: the first that a file has is taken. Averaged weights come first: they are
// what the trainers show and what people publish.
constexpr std::array<std::string_view, 17> kWrappers{
    "params_ema", "params-ema", "model_ema", "ema_state_dict", "state_dict_ema", "params",  "model_state_dict",
    "state_dict", "model",      "generator", "netG",           "net_g",          "g_model", "network",
    "net",        "g",          "weights"};
constexpr int kMaxWrappers = 4;  // one in another

// Put before all names by what a network is wrapped in.
constexpr std::array<std::string_view, 2> kWrapperPrefixes{"module.", "_orig_mod."};
// Before those of the network, where the file holds other networks' weights as well.
constexpr std::array<std::string_view, 3> kNetworkPrefixes{"netG.", "generator.", "net_g."};
constexpr std::array<std::string_view, 5> kLightningPrefixes{"generator.", "netG.", "model.", "net.", "network."};
constexpr std::string_view kLightningMark = "pytorch-lightning_version";
constexpr std::string_view kAverageCount = "n_averaged";  // of torch.optim.swa_utils.AveragedModel, beside "module.…"

// Views may overlap: so few bytes can stand for very many. Tied weights need some room.
constexpr std::uint64_t kMaxRepeats = 16;
constexpr std::uint64_t kMaxRepeatedBytes = 1 << 20;  // of small files
constexpr std::size_t kMostDims = 32;
constexpr std::size_t kMaxTexts = 1000;
constexpr std::size_t kLongestText = 1 << 20;

std::string text_list(std::vector<std::string> names) {
  constexpr std::size_t kShown = 5;
  const std::size_t count = names.size();
  if (count > kShown) names.resize(kShown);
  return join(names, ", ") + (count > kShown ? fmt::format(", … ({} in all)", count) : "");
}

// What holds storages: a zip, or what follows the pickle in an old file.
class Storages {
 public:
  virtual ~Storages() = default;
  virtual Bytes find(std::string_view key) = 0;
};

class ZipStorages : public Storages {
 public:
  ZipStorages(const ZipReader& archive, std::string folder) : archive_(archive), folder_(std::move(folder)) {}

  Bytes find(std::string_view key) override {
    const std::string name = fmt::format("{}data/{}", folder_, key);
    used_.insert(name);
    return archive_.content(name);
  }
  const std::set<std::string>& used() const { return used_; }

 private:
  const ZipReader& archive_;
  std::string folder_;
  std::set<std::string> used_;
};

const StorageType* storage_type(std::string_view global) {
  const auto* row = std::ranges::find_if(kStorageTypes, [&](const StorageType& type) {
    return !type.storage.empty() &&
           (global == fmt::format("torch.{}", type.storage) || global == fmt::format("torch.cuda.{}", type.storage));
  });
  return row == kStorageTypes.end() ? nullptr : row;
}

const StorageType* dtype_row(std::string_view global) {
  const auto* row = std::ranges::find_if(
      kStorageTypes, [&](const StorageType& type) { return global == fmt::format("torch.{}", type.dtype); });
  return row == kStorageTypes.end() ? nullptr : row;
}

bool is_untyped(std::string_view global) {
  return global == "torch.UntypedStorage" || global == "torch.storage.UntypedStorage";
}

// What a pickle says of a storage.
struct StorageRecord {
  std::string_view key;
  std::optional<torch::ScalarType> type;  // none: bytes
  std::uint64_t elements = 0;
  std::uint64_t bytes() const { return elements * (type ? torch::elementSize(*type) : 1); }
};

class TorchPickle {
 public:
  TorchPickle(const Pickle& pickle, std::string what)
      : pickle_(pickle), what_(std::move(what)), tensors_(pickle.size()) {
    std::string function;
    for (std::size_t i = 0; i < pickle.size(); ++i) {
      tensors_[i] = tensor_call(pickle[static_cast<PickleRef>(i)], function) != nullptr;
    }
  }

  const Pickle& pickle() const { return pickle_; }

  StorageRecord storage(const PickleValue& value) const {
    if (value.kind != Kind::persistent) damaged("a tensor without a storage");
    const PickleValue& id = pickle_[value.items[0]];
    if (id.kind != Kind::tuple || id.items.size() < 5 || item(id, 0).text != "storage")
      damaged("a storage without its place");
    const std::string type = pickle_.global_name(id.items[1]);
    const StorageType* row = storage_type(type);
    if (!row && !is_untyped(type))
      fail(fmt::format("{}: its tensors are of the type {}, which is not read", what_, type));
    if (item(id, 2).kind != Kind::text) damaged("a storage without a key");
    if (id.items.size() > 5 && item(id, 5).kind != Kind::none) {
      fail(fmt::format(
          "{}: its storages are parts of others, as PyTorch before 0.4 wrote: load and save it with a newer "
          "PyTorch first",
          what_));
    }
    StorageRecord record{.key = item(id, 2).text, .elements = count(item(id, 4))};
    if (row) record.type = row->type;
    constexpr std::uint64_t kLargestElement = 16;
    if (record.elements > std::numeric_limits<std::int64_t>::max() / kLargestElement)
      damaged("a storage of no possible size");
    return record;
  }

  // The arguments of the call that makes a tensor, wrappers taken off; nullptr for all other values.
  const PickleValue* tensor_call(const PickleValue& value, std::string& function) const {
    const PickleValue* object = &value;
    constexpr int kMaxTensorWrappers = 4;
    for (int depth = 0; depth < kMaxTensorWrappers && object->kind == Kind::object; ++depth) {
      function = pickle_.global_name(object->items[0]);
      const PickleValue& arguments = pickle_[object->items[1]];
      if (function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor" ||
          function == "torch._utils._rebuild_tensor_v3") {
        return &arguments;
      }
      const bool wraps = function == "torch._utils._rebuild_parameter" ||
                         function == "torch._utils._rebuild_parameter_with_state" ||
                         function == "torch.nn.parameter.Parameter";
      if (wraps && !arguments.items.empty()) {
        object = &pickle_[arguments.items[0]];
        continue;
      }
      // (function, class, arguments, attributes) of a tensor with attributes of its own.
      if (function != "torch._tensor._rebuild_from_type_v2" || arguments.items.size() < 3) return nullptr;
      function = pickle_.global_name(arguments.items[0]);
      const bool makes_tensor = function == "torch._utils._rebuild_tensor_v2";
      return makes_tensor ? &pickle_[arguments.items[2]] : nullptr;
    }
    return nullptr;
  }
  bool is_tensor(PickleRef ref) const { return tensors_[ref]; }

  // Of a class or function; old files keep classes of networks beside the pickle, as ("module", class, file, text).
  std::string class_name(PickleRef callee) const {
    const PickleValue& value = pickle_[callee];
    if (value.kind != Kind::persistent) return pickle_.global_name(callee);
    const PickleValue& id = pickle_[value.items[0]];
    return id.kind == Kind::tuple && id.items.size() > 1 ? pickle_.global_name(id.items[1]) : std::string();
  }

  const PickleValue& item(const PickleValue& list, std::size_t index) const {
    if (index >= list.items.size()) damaged("too short a list");
    return pickle_[list.items[index]];
  }
  std::uint64_t count(const PickleValue& value) const {
    if (value.kind != Kind::integer || value.integer < 0) damaged("a size that is none");
    return static_cast<std::uint64_t>(value.integer);
  }
  [[noreturn]] void damaged(std::string_view why) const { fail(fmt::format("{}: damaged: {}", what_, why)); }

 private:
  const Pickle& pickle_;
  std::string what_;
  std::vector<bool> tensors_;  // by reference: asked for again and again
};

// Makes tensors on the mapped file.
class TensorMaker {
 public:
  TensorMaker(const TorchPickle& torch_pickle, Storages& storages, std::shared_ptr<MappedFile> file)
      : source_(torch_pickle), storages_(storages), file_(std::move(file)) {
    const std::uint64_t bytes = file_->bytes().size();
    bytes_left_ = std::max(kMaxRepeats * bytes, kMaxRepeatedBytes);
  }

  // nullopt: no tensor. `name` is for messages.
  std::optional<torch::Tensor> make(const PickleValue& value, std::string_view name) {
    std::string function;
    const PickleValue* arguments = source_.tensor_call(value, function);
    if (!arguments) return std::nullopt;
    const StorageRecord storage = source_.storage(source_.item(*arguments, 0));
    const Bytes bytes = content(storage);
    torch::ScalarType type = storage.type.value_or(torch::kUInt8);
    if (function == "torch._utils._rebuild_tensor_v3") {
      constexpr std::size_t kDtype = 6;
      source_.item(*arguments, kDtype);
      const std::string dtype = source_.pickle().global_name(arguments->items[kDtype]);
      const StorageType* row = dtype_row(dtype);
      if (!row) source_.damaged(fmt::format("\"{}\" is of the type \"{}\", which is not read", name, dtype));
      type = row->type;
    }
    const std::uint64_t offset = source_.count(source_.item(*arguments, 1));
    const std::vector<std::int64_t> sizes = numbers(source_.item(*arguments, 2)),
                                    strides = numbers(source_.item(*arguments, 3));
    check(name, sizes, strides, offset, bytes.size() / torch::elementSize(type), torch::elementSize(type));
    return view(bytes, offset, sizes, strides, type);
  }

 private:
  std::vector<std::int64_t> numbers(const PickleValue& tuple) const {
    if (tuple.kind != Kind::tuple || tuple.items.size() > kMostDims) source_.damaged("a shape that is none");
    std::vector<std::int64_t> found;
    for (std::size_t i = 0; i < tuple.items.size(); ++i) {
      found.push_back(static_cast<std::int64_t>(source_.count(source_.item(tuple, i))));
    }
    return found;
  }

  Bytes content(const StorageRecord& storage) const {
    const Bytes bytes = storages_.find(storage.key);
    if (bytes.size() != storage.bytes()) {
      source_.damaged(fmt::format("the storage \"{}\" has {} bytes, but should have {}", storage.key, bytes.size(),
                                  storage.bytes()));
    }
    return bytes;
  }

  // Every element lies within the storage, and all tensors together are no more than a file of this size may hold.
  void check(std::string_view name, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
             std::uint64_t offset, std::uint64_t elements, std::uint64_t element_bytes) {
    if (sizes.size() != strides.size()) source_.damaged(fmt::format("\"{}\" has a shape without its strides", name));
    std::uint64_t last = offset, total = element_bytes;
    bool overflow = false;
    const bool empty = std::ranges::find(sizes, 0) != sizes.end();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[i], 1));
      std::uint64_t reach = 0;
      overflow |= __builtin_mul_overflow(size - 1, strides[i], &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
      overflow |= __builtin_mul_overflow(total, size, &total);
    }
    overflow |= total > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (overflow || (last >= elements && !empty)) {
      source_.damaged(fmt::format("\"{}\", [{}] with strides [{}] from {}, goes beyond its storage of {} elements",
                                  name, fmt::join(sizes, ", "), fmt::join(strides, ", "), offset, elements));
    }
    if (empty) return;
    if (total > bytes_left_) {
      source_.damaged(fmt::format("its tensors repeat the file's {} bytes more than {} times (\"{}\")",
                                  file_->bytes().size(), kMaxRepeats, name));
    }
    bytes_left_ -= total;
  }

  torch::Tensor view(Bytes bytes, std::uint64_t offset, const std::vector<std::int64_t>& sizes,
                     const std::vector<std::int64_t>& strides, torch::ScalarType type) const {
    if (std::ranges::find(sizes, 0) != sizes.end()) return torch::empty(sizes, type);
    // A bool that is neither 0 nor 1 must not come into being.
    const bool is_bool = type == torch::kBool;
    const std::size_t element_bytes = torch::elementSize(type);
    std::byte* start = bytes.data() + offset * element_bytes;
    const torch::TensorOptions options = torch::TensorOptions().dtype(is_bool ? torch::kUInt8 : type);
    const bool aligned = reinterpret_cast<std::uintptr_t>(start) % element_bytes == 0;
    if (aligned) {
      torch::Tensor tensor = torch::from_blob(
          start, sizes, strides, [file = file_](void*) {}, options);
      return is_bool ? tensor.ne(0) : tensor;
    }
    std::vector<std::int64_t> byte_sizes = sizes, byte_strides = strides;
    for (std::int64_t& stride : byte_strides) stride *= static_cast<std::int64_t>(element_bytes);
    byte_sizes.push_back(static_cast<std::int64_t>(element_bytes));
    byte_strides.push_back(1);
    const torch::Tensor unaligned = torch::from_blob(start, byte_sizes, byte_strides, torch::kUInt8);
    return unaligned.clone(torch::MemoryFormat::Contiguous).view(type).view(sizes);
  }

  const TorchPickle& source_;
  Storages& storages_;
  std::shared_ptr<MappedFile> file_;
  std::uint64_t bytes_left_;
};

// --- Which dict ---

struct ChosenWeights {
  const PickleValue* dict;
  std::vector<std::string> path;                // the keys that led to it
  std::vector<const PickleValue*> dicts_above;  // outermost first
};

class WeightsFinder {
 public:
  WeightsFinder(const TorchPickle& torch_pickle, std::string what) : source_(torch_pickle), what_(std::move(what)) {}

  ChosenWeights find() const {
    const Pickle& pickle = source_.pickle();
    ChosenWeights chosen{&pickle.root(), {}, {}};
    if (chosen.dict->kind == Kind::object) fail_object(*chosen.dict, "the file");
    if (chosen.dict->kind != Kind::dict) fail(fmt::format("{}: holds no dict of weights", what_));
    for (int depth = 0; depth < kMaxWrappers; ++depth) {
      const auto [key, inner] = next(*chosen.dict);
      if (!inner) break;
      chosen.path.push_back(std::string(key));
      chosen.dicts_above.push_back(chosen.dict);
      chosen.dict = inner;
    }
    if (!has_tensor(*chosen.dict)) fail_without_weights(*chosen.dict);
    return chosen;
  }

 private:
  bool has_tensor(const PickleValue& dict) const {
    for (std::size_t i = 1; i < dict.items.size(); i += 2) {
      if (source_.is_tensor(dict.items[i])) return true;
    }
    return false;
  }

  // Whether there are tensors in it or in its dicts. `seen`: a dict may be in itself.
  bool holds_tensors(const PickleValue& value, int depth, std::set<const PickleValue*>& seen) const {
    if (value.kind != Kind::dict || !seen.insert(&value).second) return false;
    if (has_tensor(value)) return true;
    for (std::size_t i = 1; i < value.items.size() && depth > 0; i += 2) {
      if (holds_tensors(source_.pickle()[value.items[i]], depth - 1, seen)) return true;
    }
    return false;
  }

  // The dict inside that has the weights; none: they are here.
  std::pair<std::string_view, const PickleValue*> next(const PickleValue& dict) const {
    const Pickle& pickle = source_.pickle();
    std::set<const PickleValue*> seen;
    for (const std::string_view key : kWrappers) {
      const PickleValue* inner = pickle.find(dict, key);
      if (inner && holds_tensors(*inner, kMaxWrappers, seen)) return {key, inner};
    }
    if (has_tensor(dict)) return {};
    std::pair<std::string_view, const PickleValue*> only;
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue& inner = pickle[dict.items[i + 1]];
      if (!holds_tensors(inner, kMaxWrappers, seen)) continue;
      if (only.second) return {};
      only = {pickle[dict.items[i]].text, &inner};
    }
    return only;
  }

  [[noreturn]] void fail_object(const PickleValue& object, std::string_view where) const {
    const std::string name = source_.class_name(object.items[0]);
    fail(fmt::format("{}: {} is a pickled object ({}), which is code and not weights: save its state_dict() instead",
                     what_, where, name.empty() ? "of a class that it makes up" : name));
  }
  [[noreturn]] void fail_without_weights(const PickleValue& dict) const {
    const Pickle& pickle = source_.pickle();
    std::vector<std::string> keys;
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue& key = pickle[dict.items[i]];
      if (key.kind != Kind::text) continue;
      const PickleValue& value = pickle[dict.items[i + 1]];
      const bool wrapper = std::ranges::find(kWrappers, key.text) != kWrappers.end();
      if (wrapper && value.kind == Kind::object) fail_object(value, fmt::format("its \"{}\"", key.text));
      keys.emplace_back(key.text);
    }
    fail(fmt::format("{}: no weights found in it; its keys: {}", what_, keys.empty() ? "none" : text_list(keys)));
  }

  const TorchPickle& source_;
  std::string what_;
};

// --- Names ---

bool all_begin_with(const NamedTensors& tensors, std::string_view prefix) {
  return std::ranges::all_of(tensors, [&](const auto& item) { return item.first.starts_with(prefix); });
}

// The names that begin with it, shortened; the others are dropped.
void keep_only(NamedTensors& tensors, std::string_view prefix) {
  std::erase_if(tensors, [&](const auto& item) { return !item.first.starts_with(prefix); });
  for (auto& [name, tensor] : tensors) name.erase(0, prefix.size());
}

void drop_average_count(NamedTensors& tensors) {
  std::erase_if(tensors, [](const auto& item) { return item.first == kAverageCount; });
}

bool strip_wrapper(NamedTensors& tensors) {
  for (const std::string_view prefix : kWrapperPrefixes) {
    if (!all_begin_with(tensors, prefix)) continue;
    keep_only(tensors, prefix);
    return true;
  }
  return false;
}

bool strip_network(WeightsFile& file, std::span<const std::string_view> prefixes) {
  NamedTensors& tensors = file.tensors;
  for (const std::string_view prefix : prefixes) {
    const auto matching =
        std::ranges::count_if(tensors, [&](const auto& item) { return item.first.starts_with(prefix); });
    if (matching == 0) continue;
    if (const std::size_t others = tensors.size() - static_cast<std::size_t>(matching); others > 0) {
      file.notes.push_back(
          fmt::format("of its tensors, the {} below \"{}\" are taken; {} others are not", matching, prefix, others));
    }
    keep_only(tensors, prefix);
    return true;
  }
  return false;
}

void strip_prefixes(WeightsFile& file, bool lightning) {
  const bool averaged =
      std::ranges::any_of(file.tensors, [](const auto& item) { return item.first == kAverageCount; }) &&
      std::ranges::any_of(file.tensors, [](const auto& item) { return item.first.starts_with("module."); });
  if (averaged) drop_average_count(file.tensors);
  constexpr int kMaxPrefixes = 4;
  for (int i = 0; i < kMaxPrefixes && !file.tensors.empty(); ++i) {
    if (!strip_wrapper(file.tensors)) break;
  }
  const std::span<const std::string_view> prefixes = lightning ? std::span<const std::string_view>(kLightningPrefixes)
                                                               : std::span<const std::string_view>(kNetworkPrefixes);
  if (strip_network(file, prefixes)) {
    for (int i = 0; i < kMaxPrefixes && strip_wrapper(file.tensors); ++i) continue;
  }
}

// --- Values beside the weights ---

std::optional<std::string> small_text(const PickleValue& value) {
  switch (value.kind) {
    case Kind::boolean:
      return value.integer != 0 ? "true" : "false";
    case Kind::integer:
      return std::to_string(value.integer);
    case Kind::real:
      return fmt::format("{}", value.real);
    case Kind::text:
      return value.text.size() <= kLongestText ? std::optional(std::string(value.text)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

void keep_texts(const Pickle& pickle, const PickleValue& dict, std::map<std::string, std::string>& metadata) {
  for (std::size_t i = 0; i + 1 < dict.items.size() && metadata.size() < kMaxTexts; i += 2) {
    const PickleValue& key = pickle[dict.items[i]];
    if (key.kind != Kind::text) continue;
    if (const auto text = small_text(pickle[dict.items[i + 1]]))
      metadata.insert_or_assign(std::string(key.text), *text);
  }
}

std::vector<std::string> keys_beside(const Pickle& pickle, const PickleValue& dict, const PickleValue& chosen) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& key = pickle[dict.items[i]];
    if (&pickle[dict.items[i + 1]] != &chosen && key.kind == Kind::text) keys.emplace_back(key.text);
  }
  return keys;
}

// --- The file ---

WeightsFile weights_of(const Pickle& pickle, Storages& storages, const std::shared_ptr<MappedFile>& file,
                       const std::string& what) {
  const TorchPickle source(pickle, what);
  const ChosenWeights chosen = WeightsFinder(source, what).find();
  WeightsFile weights;
  bool lightning = false;
  const PickleValue* inner = chosen.dict;
  for (std::size_t i = chosen.dicts_above.size(); i-- > 0;) {
    const PickleValue& above = *chosen.dicts_above[i];
    const std::vector<std::string> others = keys_beside(pickle, above, *inner);
    weights.notes.push_back(fmt::format("the weights are those of \"{}\"{}", chosen.path[i],
                                        others.empty() ? "" : fmt::format("; beside it: {}", text_list(others))));
    lightning |= pickle.find(above, kLightningMark) != nullptr;
    inner = &above;
  }
  std::ranges::reverse(weights.notes);
  for (const PickleValue* above : chosen.dicts_above) keep_texts(pickle, *above, weights.metadata);
  keep_texts(pickle, *chosen.dict, weights.metadata);

  TensorMaker maker(source, storages, file);
  std::vector<std::string> skipped;
  for (std::size_t i = 0; i + 1 < chosen.dict->items.size(); i += 2) {
    const PickleValue& key = pickle[chosen.dict->items[i]];
    const PickleValue& value = pickle[chosen.dict->items[i + 1]];
    if (key.kind != Kind::text) continue;
    if (auto tensor = maker.make(value, key.text)) {
      weights.tensors.emplace_back(key.text, std::move(*tensor));
    } else if (!small_text(value)) {
      skipped.emplace_back(key.text);
    }
  }
  if (!skipped.empty()) weights.notes.push_back(fmt::format("passed over, no tensors: {}", text_list(skipped)));
  strip_prefixes(weights, lightning);
  return weights;
}

// "NAME/" of NAME/data.pkl.
std::string folder_in(const ZipReader& archive, const std::string& what) {
  constexpr std::string_view kPickle = "data.pkl";
  for (const auto& [name, record] : archive.records()) {
    const bool in_top_folder = name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size() - 1;
    if (in_top_folder) return std::string(name.substr(0, name.size() - kPickle.size()));
  }
  fail(fmt::format("{}: a zip archive, but none of torch.save (it has no data.pkl)", what));
}

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

WeightsFile read_zip(const std::shared_ptr<MappedFile>& file, const std::string& what) {
  const ZipReader archive(file->bytes(), what);
  if (holds_torchscript(archive)) {
    fail(fmt::format(
        "{}: TorchScript, which is a network and not weights alone: model.arch = \"torchscript\" takes it as "
        "model.file",
        what));
  }
  const std::string folder = folder_in(archive, what);
  const std::string order = folder + "byteorder";
  if (archive.contains(order) && as_text(archive.content(order)) != "little") {
    fail(fmt::format("{}: its numbers are stored in the byte order \"{}\", only \"little\" is read", what,
                     as_text(archive.content(order)).substr(0, 16)));
  }
  const std::string pickle_name = folder + "data.pkl";
  const ReadPickle read = read_pickle(archive.content(pickle_name), what);
  ZipStorages storages(archive, folder);
  WeightsFile weights = weights_of(read.pickle, storages, file, what);
  std::vector<std::string> changed;
  if (!archive.is_intact(pickle_name)) changed.push_back(pickle_name);
  for (const std::string& name : storages.used()) {
    if (!archive.is_intact(name)) changed.push_back(name);
  }
  if (!changed.empty()) {
    weights.warnings.push_back(fmt::format(
        "these records have other checksums than when they were written, so the file is damaged (or was saved "
        "without checksums): {}",
        text_list(changed)));
  }
  return weights;
}

// The storages of a file from before PyTorch 1.6, after its pickles.
class OldStorages : public Storages {
 public:
  OldStorages(const TorchPickle& source, Bytes rest, const std::string& what) : what_(what) {
    const Pickle& pickle = source.pickle();
    std::map<std::string_view, StorageRecord> known;
    for (std::size_t i = 0; i < pickle.size(); ++i) {
      const PickleValue& value = pickle[static_cast<PickleRef>(i)];
      if (value.kind != Kind::persistent || is_source_code(pickle, value)) continue;
      const StorageRecord record = source.storage(value);
      known.emplace(record.key, record);
    }
    const ReadPickle keys = read_pickle(rest, what);
    rest = rest.subspan(keys.bytes);
    if (keys.pickle.root().kind != Kind::list) source.damaged("the list of its storages is none");
    for (const PickleRef ref : keys.pickle.root().items) {
      const auto found = known.find(keys.pickle[ref].text);
      if (found == known.end())
        source.damaged(fmt::format("its storage \"{}\" belongs to no tensor", keys.pickle[ref].text));
      const StorageRecord& record = found->second;
      std::uint64_t elements = 0;
      if (rest.size() < sizeof elements) source.damaged("cut off");
      std::memcpy(&elements, rest.data(), sizeof elements);
      rest = rest.subspan(sizeof elements);
      if (elements != record.elements) {
        source.damaged(fmt::format("its storage \"{}\" has {} elements, but should have {}", record.key, elements,
                                   record.elements));
      }
      if (record.bytes() > rest.size()) source.damaged(fmt::format("cut off within its storage \"{}\"", record.key));
      found_.emplace(record.key, rest.first(record.bytes()));
      rest = rest.subspan(record.bytes());
    }
  }

  Bytes find(std::string_view key) override {
    const auto found = found_.find(key);
    if (found == found_.end()) fail(fmt::format("{}: damaged: its storage \"{}\" is missing", what_, key));
    return found->second;
  }

 private:
  // ("module", class, file, text), of a whole network that was saved.
  static bool is_source_code(const Pickle& pickle, const PickleValue& value) {
    const PickleValue& id = pickle[value.items[0]];
    return id.kind == Kind::tuple && !id.items.empty() && pickle[id.items[0]].text == "module";
  }

  std::string what_;
  std::map<std::string_view, Bytes> found_;
};

WeightsFile read_old(const std::shared_ptr<MappedFile>& file, const std::string& what) {
  constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";  // 0x1950a86a20f9469cfc6c
  constexpr std::int64_t kVersion = 1001;
  Bytes rest = file->bytes();
  const auto next = [&] {
    ReadPickle read = read_pickle(rest, what);
    rest = rest.subspan(read.bytes);
    return std::move(read.pickle);
  };
  const Pickle magic = next();
  if (magic.root().kind != Kind::bytes || magic.root().text != kMagic) {
    fail(fmt::format("{}: a Python pickle, but none of torch.save: save the network's state_dict() with torch.save",
                     what));
  }
  const Pickle version = next();
  if (version.root().kind != Kind::integer || version.root().integer != kVersion) {
    fail(fmt::format("{}: a file of torch.save of an unknown version, known: {}", what, kVersion));
  }
  const Pickle machine = next();
  const PickleValue* little = machine.find(machine.root(), "little_endian");
  if (little && little->integer == 0)
    fail(fmt::format("{}: its numbers are stored in big-endian order, which is not read", what));
  const Pickle pickle = next();
  const TorchPickle source(pickle, what);
  OldStorages storages(source, rest, what);
  return weights_of(pickle, storages, file, what);
}

// --- Writing ---

template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// The few words of a pickle that a dict of tensors needs.
class PickleWriter {
 public:
  std::string take() { return std::move(bytes_) + "."; }

  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void text(std::string_view text) {
    bytes_ += 'X';
    bytes_ += raw(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  void tensor(const torch::Tensor& tensor, const StorageType& type, std::size_t key) {
    bytes_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    text("storage");
    bytes_ += fmt::format("ctorch\n{}\n", type.storage);
    text(std::to_string(key));
    text("cpu");
    integer(tensor.numel());
    bytes_ += "tQ";
    integer(0);  // offset
    tuple(tensor.sizes());
    tuple(tensor.strides());
    bytes_ += "\x89";                             // needs no gradient
    bytes_ += "ccollections\nOrderedDict\n)RtR";  // and has no hooks
  }

 private:
  void integer(std::int64_t number) {
    const bool small = number <= std::numeric_limits<std::int32_t>::max();
    bytes_ += small ? "J" + raw(static_cast<std::int32_t>(number)) : "\x8a\x08" + raw(number);
  }
  void tuple(torch::IntArrayRef numbers) {
    bytes_ += '(';
    for (const std::int64_t number : numbers) integer(number);
    bytes_ += 't';
  }

  std::string bytes_ = "\x80\x02";
};

const StorageType& written_type(const std::string& name, const torch::Tensor& tensor, const std::string& what) {
  const auto* row = std::ranges::find(kStorageTypes, tensor.scalar_type(), &StorageType::type);
  if (row != kStorageTypes.end() && !row->storage.empty()) return *row;
  fail(fmt::format("{}: \"{}\" is of the type {}, which is not written to such files", what, name,
                   torch::toString(tensor.scalar_type())));
}

std::span<const std::byte> raw_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

bool holds_torchscript(const ZipReader& archive) {
  return std::ranges::any_of(archive.records(), [](const auto& item) {
    return item.first.ends_with("/constants.pkl") || item.first.ends_with("/model.json");
  });
}

WeightsFile read_torch_file(const std::filesystem::path& path) {
  const auto file = std::make_shared<MappedFile>(path);
  const std::string what = path.string();
  return model_file_kind(file->bytes()) == ModelFileKind::zip ? read_zip(file, what) : read_old(file, what);
}

void write_torch_file(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& texts) {
  const std::string what = path.string();
  NamedTensors written;
  std::set<std::string_view> names;
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("params");
  pickle.begin_dict();
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) fail(fmt::format("{}: two tensors named \"{}\"", what, name));
    const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
    pickle.text(name);
    pickle.tensor(plain, written_type(name, plain, what), written.size());
    written.emplace_back(name, plain);
  }
  pickle.end_dict();
  for (const auto& [key, text] : texts) {
    if (key == "params") continue;
    pickle.text(key);
    pickle.text(text);
  }
  pickle.end_dict();

  PendingFile pending(path);
  std::ofstream stream(pending.path(), std::ios::binary);
  errno = 0;
  ZipWriter archive(stream);
  const std::string content = pickle.take();
  archive.add("archive/data.pkl", raw_bytes(content));
  archive.add("archive/byteorder", raw_bytes("little"));
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < written.size() && stream; ++i) {
    const torch::Tensor& tensor = written[i].second;
    const auto* start = static_cast<const std::byte*>(tensor.const_data_ptr());
    archive.add(fmt::format("archive/data/{}", i), {start, tensor.nbytes()});
    bytes += tensor.nbytes();
  }
  archive.add("archive/version", raw_bytes("3\n"));
  archive.finish();
  stream.close();
  if (!stream) fail(fmt::format("{}: cannot write {} bytes: {}", what, bytes, errno_name(errno)));
  pending.commit();
}

}  // namespace reelgrad
