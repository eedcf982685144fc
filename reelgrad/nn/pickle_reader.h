// Python's pickles as plain values. A pickle is a program that says which functions to call; this reader calls none: a
// call stays a value that names what it would have called. Knows no torch.
// Source of the format: the comments of Python's own pickletools module, protocols 2 to 5.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

enum class PickleKind : std::uint8_t {
  none,
  boolean,     // integer is 0 or 1
  integer,     // integer
  real,        // real
  text,        // text
  bytes,       // text; also whole numbers of more than 64 bits
  list,        // items
  tuple,       // items
  set,         // items
  dict,        // items: key, value, key, value, …
  global,      // items: the names of the module and of what is in it
  persistent,  // items: the identity of something that is kept beside the pickle
  object,      // items: what is called, its arguments
};

using PickleRef = std::uint32_t;  // of a value in its pickle

struct PickleValue {
  PickleKind kind = PickleKind::none;
  union {
    std::int64_t integer = 0;
    double real;
  };
  std::string_view text;         // within the pickle's bytes
  std::vector<PickleRef> items;  // one value may be in several, and within itself
};

class Pickle {
 public:
  const PickleValue& operator[](PickleRef ref) const { return values_[ref]; }
  const PickleValue& root() const { return values_[root_]; }
  PickleRef root_ref() const { return root_; }
  std::size_t size() const { return values_.size(); }

  // "module.name", when this is a global; else empty.
  std::string global_name(PickleRef ref) const;

  // The value under that key of a dict, else nullptr.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  PickleRef root_ = 0;
};

struct ReadPickle {
  Pickle pickle;
  std::size_t bytes = 0;  // that it took
};

// The pickle at the start of these bytes, which must outlive it. Time and memory (below 100 MB) are bounded whatever
// they hold. OrderedDict and defaultdict become dicts; torch.Size a tuple; sets sets. Throws failed, naming `what`: for
// damage, for more than any file of weights has, and for functions that only an attack would call, such as os.system.
ReadPickle read_pickle(std::span<const std::byte> bytes, const std::string& what);

}  // namespace reelgrad
