// A function's arguments as VapourSynth hands them over. Throws usage for values that are not allowed, naming both.
#pragma once
#include <VapourSynth4.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {

class Arguments {
 public:
  Arguments(const VSMap* in, const VSAPI* api) : in_(in), api_(api) {}

  bool given(const char* key) const { return api_->mapNumElements(in_, key) > 0; }
  std::string text(const char* key, const std::string& fallback) const;
  std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number(const char* key, double fallback, double least, double most) const;
  bool flag(const char* key, bool fallback) const;
  // Which of the words it is.
  std::size_t choice(const char* key, std::initializer_list<std::string_view> words) const;  // not given: the first
  NodeHandle node(const char* key) const;                                                    // null where not given

 private:
  const VSMap* in_;
  const VSAPI* api_;
};

// "a", "b" or "c"
std::string in_words(std::initializer_list<std::string_view> words);

}  // namespace reelgrad::vs
