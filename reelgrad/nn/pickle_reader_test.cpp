#include "reelgrad/nn/pickle_reader.h"

#include <gmock/gmock.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/memory_limit.h"

namespace reelgrad {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

ReadPickle read(const std::string& bytes) {
  return read_pickle(std::as_bytes(std::span(bytes)), "x.pth");
}

std::string pickle_error(const std::string& bytes) {
  try {
    read(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), HasSubstr("x.pth"));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

std::string repeated(std::string_view part, std::size_t times) {
  std::string whole;
  whole.reserve(part.size() * times);
  for (std::size_t i = 0; i < times; ++i) whole += part;
  return whole;
}

// Python's own words for a value, so that a test reads as what it expects.
std::string show(const Pickle& pickle, PickleRef ref) {
  const PickleValue& value = pickle[ref];
  const auto items = [&](std::string_view separators) {
    std::string text;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) text += separators[i % separators.size()];
      text += show(pickle, value.items[i]);
    }
    return text;
  };
  switch (value.kind) {
    case PickleKind::none:
      return "None";
    case PickleKind::boolean:
      return value.integer ? "True" : "False";
    case PickleKind::integer:
      return std::to_string(value.integer);
    case PickleKind::real:
      return std::to_string(value.real);
    case PickleKind::text:
      return "'" + std::string(value.text) + "'";
    case PickleKind::bytes:
      return "b'" + std::string(value.text) + "'";
    case PickleKind::list:
      return "[" + items(",") + "]";
    case PickleKind::tuple:
      return "(" + items(",") + ")";
    case PickleKind::set:
      return "set(" + items(",") + ")";
    case PickleKind::dict:
      return "{" + items(",:") + "}";
    case PickleKind::global:
      return pickle.global_name(ref);
    case PickleKind::persistent:
      return "persistent" + items(",");
    case PickleKind::object:
      return show(pickle, value.items[0]) + show(pickle, value.items[1]);
  }
  return {};
}

std::string shown(const std::string& bytes) {
  const ReadPickle read_one = read(bytes);
  return show(read_one.pickle, read_one.pickle.root_ref());
}

TEST(Pickle, ReadsPlainValues) {
  EXPECT_EQ(shown("\x80\x02}q\x00(X\x01\x00\x00\x00"
                  "aK\x05X\x01\x00\x00\x00"
                  "b]q\x01(\x88\x89NeU\x01"
                  "c)u."s),
            "{'a':5,'b':[True,False,None],'c':()}");
  EXPECT_EQ(shown("\x80\x02(J\xfe\xff\xff\xffM\x00\x01K\xfft."s), "(-2,256,255)");
  EXPECT_EQ(shown("\x80\x02\x8a\x00."s), "0");
  EXPECT_EQ(shown("\x80\x02\x8a\x05\x00\x00\x00\x00\x01."s), "4294967296");
  EXPECT_EQ(shown("\x80\x02\x8a\x01\xff."s), "-1");
  EXPECT_EQ(shown("\x80\x02\x8a\x09"
                  "123456789."s),
            "b'123456789'");  // more than 64 bits
  EXPECT_EQ(shown("\x80\x02G\x3f\xf8\x00\x00\x00\x00\x00\x00."s), "1.500000");
  EXPECT_EQ(shown("\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8f\x94(K\x01K\x02\x90."s), "set(1,2)");
  EXPECT_EQ(shown("\x80\x03"
                  "C\x03"
                  "abc."s),
            "b'abc'");
  EXPECT_EQ(shown("\x80\x02K\x01K\x02\x86q\x00h\x00\x86."s), "((1,2),(1,2))");
}

TEST(Pickle, CallsNothingAndNamesWhatWouldBeCalled) {
  EXPECT_EQ(shown("\x80\x02"
                  "cargparse\nNamespace\n)\x81}X\x01\x00\x00\x00"
                  "aK\x01sb."s),
            "argparse.Namespace()");
  EXPECT_EQ(shown("\x80\x04\x8c\x01m\x8c\x01"
                  "f\x93K\x01\x85R."s),
            "m.f(1)");
  EXPECT_EQ(shown("\x80\x02(X\x07\x00\x00\x00storageK\x01tQ."s), "persistent('storage',1)");
  EXPECT_EQ(shown("\x80\x02"
                  "ccollections\nOrderedDict\n)RX\x01\x00\x00\x00"
                  "aK\x01s}b."s),
            "{'a':1}");
  // As Python 2 wrote it, from a list of pairs.
  EXPECT_EQ(shown("\x80\x02"
                  "ccollections\nOrderedDict\n]]U\x01"
                  "aaK\x01"
                  "aa\x85R."s),
            "{'a':1}");
  EXPECT_EQ(shown("\x80\x02"
                  "ctorch\nSize\nK\x02K\x03\x86\x85R."s),
            "(2,3)");
}

TEST(Pickle, RefusesWhatOnlyAnAttackWouldCall) {
  for (const std::string name : {"os\nsystem", "posix\nsystem", "nt\nsystem", "builtins\neval", "__builtin__\nexec",
                                 "subprocess\nPopen", "importlib\nimport_module", "os.path\njoin"}) {
    EXPECT_THAT(pickle_error("\x80\x02"
                             "c" +
                             name + "\nX\x01\x00\x00\x00"s + "a\x85R."),
                AllOf(HasSubstr("refused"), HasSubstr("nothing of it was run")))
        << name;
  }
  EXPECT_THAT(pickle_error("\x80\x04\x8c\x02os\x8c\x06system\x93."s), HasSubstr("os.system"));
}

TEST(Pickle, SaysWhatIsDamaged) {
  EXPECT_THAT(pickle_error(""), HasSubstr("byte 0"));
  EXPECT_THAT(pickle_error("\x80\x02"s), HasSubstr("are left"));
  EXPECT_THAT(pickle_error("\x80\x01."s), HasSubstr("protocol 1"));
  EXPECT_THAT(pickle_error("\x80\x06."s), HasSubstr("protocol 6"));
  EXPECT_THAT(pickle_error("\x80\x02."s), HasSubstr("there is none"));
  EXPECT_THAT(pickle_error("\x80\x02t."s), HasSubstr("a mark"));
  EXPECT_THAT(pickle_error("\x80\x02K\x01(\x85."s), HasSubstr("more values"));
  EXPECT_THAT(pickle_error("\x80\x02}(K\x01u."s), HasSubstr("a key without a value"));
  EXPECT_THAT(pickle_error("\x80\x02K\x01K\x02s."s), HasSubstr("there is none"));
  EXPECT_THAT(pickle_error("\x80\x02K\x01K\x02"
                           "a."s),
              HasSubstr("no collection"));
  EXPECT_THAT(pickle_error("\x80\x02h\x05."s), HasSubstr("memo number 5 is not known"));
  EXPECT_THAT(pickle_error("\x80\x02X\xff\xff\xff\xff"
                           "a."s),
              HasSubstr("4294967295 bytes are wanted"));
  EXPECT_THAT(pickle_error("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                           "a."s),
              HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(pickle_error("\x80\x02"
                           "cos"s),
              HasSubstr("a name without its end"));
  EXPECT_THAT(pickle_error("\x80\x02i."s), HasSubstr("0x69"));  // INST, of protocol 0
  EXPECT_THAT(pickle_error("\x80\x02"
                           "2."s),
              HasSubstr("0x32"));  // DUP, which no pickler writes
}

TEST(Pickle, BombsAreRefusedCheaply) {
  const std::string start = "\x80\x02"s;
  const std::vector<std::string> bombs{
      start + repeated("]", 3'000'000) + ".",                  // values
      start + repeated("(", 3'000'000) + ".",                  // marks
      start + repeated("]\x85", 1'000'000) + ".",              // nested, and values
      start + repeated("N", 5'000'000) + ".",                  // a deep stack
      start + "]" + "r\xff\xff\xff\xff.",                      // a memo number
      start + repeated("]r\xff\xff\x0f\x00"s, 200'000) + ".",  // memo numbers
      start + "(" + repeated("N", 10'000) + "lq\x00"s + "(" + repeated("h\x00"s, 1000) + "l" +
          repeated("c__builtin__\nset\nh\x00\x85R"s, 3000) + ".",                 // a list, copied again and again
      start + "]q\x00"s + repeated("h\x00"s + "a", 1'000'000) + ".",              // a list in itself
      start + repeated("c" + std::string(100, 'm') + "\nname\n", 300'000) + ".",  // names
  };
  for (std::size_t i = 0; i < bombs.size(); ++i) {
    test::expect_cheap([&] {
      try {
        read(bombs[i]);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("x.pth"));
      }
    });
  }
}

TEST(Pickle, DeepNestingIsNoRecursion) {
  const std::string deep = "\x80\x02]"s + repeated("\x85", 700'000) + ".";
  test::expect_cheap([&] {
    const ReadPickle nested = read(deep);
    EXPECT_EQ(nested.pickle.root().kind, PickleKind::tuple);
    EXPECT_GT(nested.pickle.size(), 700'000U);
  });
}

}  // namespace
}  // namespace reelgrad
