#include "reelgrad/nn/pickle_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

static_assert(sizeof(PickleValue) <= 56, "with so many values, memory stays below 100 MB");
constexpr std::size_t kMaxValues = 750'000;
constexpr std::size_t kMaxSteps = 4'000'000;
constexpr std::size_t kMaxItems = 4'000'000;  // of all collections
constexpr std::size_t kMaxMarks = 10'000;     // open at a time; Python itself goes about 1000 deep
constexpr PickleRef kNoValue = ~PickleRef{0};

// Nothing would be called anyway. But whoever writes these into a file of weights means harm, and the user should know.
constexpr std::array<std::string_view, 14> kHarmfulModules{"os",    "posix",  "nt",     "subprocess", "sys",
                                                           "runpy", "shutil", "socket", "importlib",  "ctypes",
                                                           "pty",   "code",   "pickle", "webbrowser"};
constexpr std::array<std::string_view, 7> kHarmfulBuiltins{"eval",       "exec", "execfile", "compile",
                                                           "__import__", "open", "input"};

bool is_harmful(std::string_view module, std::string_view name) {
  if (module == "builtins" || module == "__builtin__" || module == "io" || module == "_io")
    return std::ranges::find(kHarmfulBuiltins, name) != kHarmfulBuiltins.end();
  return std::ranges::find(kHarmfulModules, module.substr(0, module.find('.'))) != kHarmfulModules.end();
}

}  // namespace

std::string Pickle::global_name(PickleRef ref) const {
  const PickleValue& value = values_[ref];
  if (value.kind != PickleKind::global) return {};
  return fmt::format("{}.{}", values_[value.items[0]].text, values_[value.items[1]].text);
}

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& candidate = values_[dict.items[i]];
    if (candidate.kind == PickleKind::text && candidate.text == key) return &values_[dict.items[i + 1]];
  }
  return nullptr;
}

// The stack machine that a pickle is written for.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& what)
      : bytes_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), what_(what) {
    for (PickleRef* shared : {&none_, &false_, &true_, &empty_tuple_}) *shared = add({});
    pickle_.values_[false_].kind = pickle_.values_[true_].kind = PickleKind::boolean;
    pickle_.values_[true_].integer = 1;
    pickle_.values_[empty_tuple_].kind = PickleKind::tuple;
  }

  ReadPickle run() {
    for (std::size_t step = 0; step < kMaxSteps; ++step) {
      const std::uint8_t opcode = byte();
      if (opcode == kStop) {
        pickle_.root_ = pop();
        return {std::move(pickle_), at_};
      }
      execute(opcode);
    }
    fail(fmt::format("{}: its pickle has more than {} steps, which no file of weights needs", what_, kMaxSteps));
  }

 private:
  // What a pickle says, a byte each.
  enum Opcode : std::uint8_t {
    kMark = '(',
    kStop = '.',
    kPop = '0',
    kPopMark = '1',
    kBinInt = 'J',
    kBinInt1 = 'K',
    kBinInt2 = 'M',
    kNone = 'N',
    kBinPersId = 'Q',
    kReduce = 'R',
    kBinString = 'T',
    kShortBinString = 'U',
    kBinUnicode = 'X',
    kAppend = 'a',
    kBuild = 'b',
    kGlobal = 'c',
    kDict = 'd',
    kEmptyDict = '}',
    kAppends = 'e',
    kBinGet = 'h',
    kLongBinGet = 'j',
    kList = 'l',
    kEmptyList = ']',
    kBinPut = 'q',
    kLongBinPut = 'r',
    kSetItem = 's',
    kTuple = 't',
    kEmptyTuple = ')',
    kSetItems = 'u',
    kBinFloat = 'G',
    kBinBytes = 'B',
    kShortBinBytes = 'C',
    kProto = 0x80,
    kNewObj = 0x81,
    kTuple1 = 0x85,
    kTuple2 = 0x86,
    kTuple3 = 0x87,
    kNewTrue = 0x88,
    kNewFalse = 0x89,
    kLong1 = 0x8a,
    kLong4 = 0x8b,
    kShortBinUnicode = 0x8c,
    kBinUnicode8 = 0x8d,
    kBinBytes8 = 0x8e,
    kEmptySet = 0x8f,
    kAddItems = 0x90,
    kFrozenSet = 0x91,
    kNewObjEx = 0x92,
    kStackGlobal = 0x93,
    kMemoize = 0x94,
    kFrame = 0x95,
    kByteArray8 = 0x96,
  };

  [[noreturn]] void damaged(std::string_view why) const {
    fail(fmt::format("{}: its pickle is damaged at byte {}: {}", what_, at_, why));
  }

  // --- The bytes ---
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      damaged(fmt::format("{} bytes are wanted, {} are left", count, bytes_.size() - at_));
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged("a name without its end");
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }

  // --- The values ---
  PickleRef add(PickleValue value) {
    if (pickle_.values_.size() >= kMaxValues) {
      fail(fmt::format("{}: its pickle has more than {} values, which no file of weights needs", what_, kMaxValues));
    }
    pickle_.values_.push_back(std::move(value));
    return static_cast<PickleRef>(pickle_.values_.size() - 1);
  }
  // Values are few, but each may be in many collections, and a collection may be copied.
  void count_items(std::size_t count) {
    items_ += count;
    if (items_ <= kMaxItems) return;
    fail(fmt::format("{}: its pickle puts more than {} values into collections, which no file of weights needs", what_,
                     kMaxItems));
  }
  PickleValue& value(PickleRef ref) { return pickle_.values_[ref]; }

  void push(PickleRef ref) { stack_.push_back(ref); }
  void push_new(PickleKind kind, std::vector<PickleRef> items = {}) {
    count_items(items.size());
    PickleValue value;
    value.kind = kind;
    value.items = std::move(items);
    push(add(std::move(value)));
  }
  void push_text(PickleKind kind, std::string_view text) {
    PickleValue value;
    value.kind = kind;
    value.text = text;
    push(add(std::move(value)));
  }
  void push_integer(std::int64_t number) {
    PickleValue value;
    value.kind = PickleKind::integer;
    value.integer = number;
    push(add(std::move(value)));
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleRef top() const {
    if (stack_.size() <= floor()) damaged("a value is wanted, there is none");
    return stack_.back();
  }
  PickleRef pop() {
    const PickleRef ref = top();
    stack_.pop_back();
    return ref;
  }
  std::vector<PickleRef> pop_items(std::size_t count) {
    if (stack_.size() - floor() < count) damaged("more values are wanted than there are");
    std::vector<PickleRef> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<PickleRef> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is wanted, there is none");
    std::vector<PickleRef> items = pop_items(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  // To the collection on top; what an object of an unknown class takes up is not kept.
  void append(std::vector<PickleRef> items, std::initializer_list<PickleKind> kinds) {
    PickleValue& collection = value(top());
    if (collection.kind == PickleKind::object) return;
    count_items(items.size());
    if (std::ranges::find(kinds, collection.kind) == kinds.end()) damaged("values are put into what is no collection");
    collection.items.insert(collection.items.end(), items.begin(), items.end());
  }
  void set_items(std::vector<PickleRef> items) {
    if (items.size() % 2 != 0) damaged("a key without a value");
    append(std::move(items), {PickleKind::dict});
  }

  void put(std::size_t index) {
    // Python numbers them one by one: a larger number would only be there to make us allocate.
    if (index > kMaxSteps || index > at_) damaged(fmt::format("the memo number {} is too large", index));
    if (index >= memo_.size()) memo_.resize(index + 1, kNoValue);
    memo_[index] = top();
    ++puts_;
  }
  void get(std::size_t index) {
    if (index >= memo_.size() || memo_[index] == kNoValue)
      damaged(fmt::format("the memo number {} is not known", index));
    push(memo_[index]);
  }

  // --- Names and calls ---
  void push_global(PickleRef module, PickleRef name) {
    if (value(module).kind != PickleKind::text || value(name).kind != PickleKind::text)
      damaged("a name that is no text");
    if (is_harmful(value(module).text, value(name).text)) {
      fail(
          fmt::format("{}: refused: Python would call {}.{} when it opens this file, which no file of weights does; "
                      "nothing of it was run",
                      what_, value(module).text, value(name).text));
    }
    push_new(PickleKind::global, {module, name});
  }
  PickleRef name_of(std::string_view text) {
    push_text(PickleKind::text, text);
    return pop();
  }

  // The pairs that an OrderedDict was made from, when Python 2 wrote it: ([[key, value], …],).
  std::vector<PickleRef> pairs_of(PickleRef arguments) {
    std::vector<PickleRef> items;
    if (value(arguments).items.size() != 1) return items;
    for (const PickleRef pair : value(value(arguments).items[0]).items) {
      if (value(pair).items.size() != 2) return {};
      items.insert(items.end(), value(pair).items.begin(), value(pair).items.end());
    }
    return items;
  }
  void call(PickleRef callee, PickleRef arguments) {
    if (value(arguments).kind != PickleKind::tuple) damaged("arguments that are no tuple");
    const std::string name = pickle_.global_name(callee);
    if (name == "collections.OrderedDict") return push_new(PickleKind::dict, pairs_of(arguments));
    if (name == "collections.defaultdict") return push_new(PickleKind::dict);
    const std::vector<PickleRef>& given = value(arguments).items;
    if (name == "torch.Size" && given.size() == 1 && value(given[0]).kind == PickleKind::tuple) return push(given[0]);
    const bool set = name == "builtins.set" || name == "__builtin__.set" || name == "builtins.frozenset" ||
                     name == "__builtin__.frozenset";
    if (set && given.size() == 1) return push_new(PickleKind::set, value(given[0]).items);
    push_new(PickleKind::object, {callee, arguments});
  }

  void push_long(std::string_view digits) {
    std::int64_t number = 0;
    if (digits.size() > sizeof number) return push_text(PickleKind::bytes, digits);
    if (!digits.empty() && digits.back() < 0) number = -1;  // the sign goes on into the bytes that are not written
    std::memcpy(&number, digits.data(), digits.size());
    push_integer(number);
  }
  void push_real() {
    PickleValue value;
    value.kind = PickleKind::real;
    value.real = std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>()));
    push(add(std::move(value)));
  }

  void execute(std::uint8_t opcode) {
    switch (opcode) {
      case kProto:
        if (const int protocol = byte(); protocol < 2 || protocol > 5) {
          damaged(fmt::format("protocol {}, known: 2 to 5", protocol));
        }
        return;
      case kFrame:
        take(8);
        return;
      case kMark:
        if (marks_.size() >= kMaxMarks) damaged(fmt::format("more than {} marks are open", kMaxMarks));
        return marks_.push_back(stack_.size());
      case kPop:
        if (stack_.size() == floor() && !marks_.empty()) return marks_.pop_back();
        pop();
        return;
      case kPopMark:
        pop_to_mark();
        return;

      case kNone:
        return push(none_);
      case kNewTrue:
        return push(true_);
      case kNewFalse:
        return push(false_);
      case kBinInt:
        return push_integer(number<std::int32_t>());
      case kBinInt1:
        return push_integer(byte());
      case kBinInt2:
        return push_integer(number<std::uint16_t>());
      case kLong1:
        return push_long(take(byte()));
      case kLong4:
        return push_long(take(number<std::uint32_t>()));
      case kBinFloat:
        return push_real();

      case kShortBinUnicode:
      case kShortBinString:  // a str of Python 2
        return push_text(PickleKind::text, take(byte()));
      case kBinUnicode:
      case kBinString:
        return push_text(PickleKind::text, take(number<std::uint32_t>()));
      case kBinUnicode8:
        return push_text(PickleKind::text, take(number<std::uint64_t>()));
      case kShortBinBytes:
        return push_text(PickleKind::bytes, take(byte()));
      case kBinBytes:
        return push_text(PickleKind::bytes, take(number<std::uint32_t>()));
      case kBinBytes8:
      case kByteArray8:
        return push_text(PickleKind::bytes, take(number<std::uint64_t>()));

      case kEmptyTuple:
        return push(empty_tuple_);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_new(PickleKind::tuple, pop_items(opcode - kTuple1 + 1u));
      case kTuple:
        return push_new(PickleKind::tuple, pop_to_mark());
      case kEmptyList:
        return push_new(PickleKind::list);
      case kList:
        return push_new(PickleKind::list, pop_to_mark());
      case kAppend:
        return append(pop_items(1), {PickleKind::list, PickleKind::set});
      case kAppends:
        return append(pop_to_mark(), {PickleKind::list, PickleKind::set});
      case kEmptySet:
        return push_new(PickleKind::set);
      case kAddItems:
        return append(pop_to_mark(), {PickleKind::set});
      case kFrozenSet:
        return push_new(PickleKind::set, pop_to_mark());
      case kEmptyDict:
        return push_new(PickleKind::dict);
      case kDict: {
        std::vector<PickleRef> items = pop_to_mark();
        push_new(PickleKind::dict);
        return set_items(std::move(items));
      }
      case kSetItem:
        return set_items(pop_items(2));
      case kSetItems:
        return set_items(pop_to_mark());

      case kBinPut:
        return put(byte());
      case kLongBinPut:
        return put(number<std::uint32_t>());
      case kMemoize:
        return put(puts_);
      case kBinGet:
        return get(byte());
      case kLongBinGet:
        return get(number<std::uint32_t>());

      case kGlobal: {
        const PickleRef module = name_of(line());
        return push_global(module, name_of(line()));
      }
      case kStackGlobal: {
        const PickleRef name = pop();
        return push_global(pop(), name);
      }
      case kReduce:
      case kNewObj: {
        const PickleRef arguments = pop();
        return call(pop(), arguments);
      }
      case kNewObjEx: {
        pop();  // named arguments
        const PickleRef arguments = pop();
        return call(pop(), arguments);
      }
      case kBuild:  // an object's attributes: none that we look at
        pop();
        top();
        return;
      case kBinPersId:
        return push_new(PickleKind::persistent, pop_items(1));
      default:
        damaged(fmt::format("{:#04x} is nothing that Python's protocols 2 to 5 write", opcode));
    }
  }

  std::string_view bytes_;
  const std::string& what_;
  std::size_t at_ = 0;
  Pickle pickle_;
  std::vector<PickleRef> stack_, memo_;
  std::vector<std::size_t> marks_;
  std::size_t puts_ = 0, items_ = 0;
  PickleRef none_ = 0, false_ = 0, true_ = 0, empty_tuple_ = 0;
};

ReadPickle read_pickle(std::span<const std::byte> bytes, const std::string& what) {
  return PickleMachine(bytes, what).run();
}

}  // namespace reelgrad
