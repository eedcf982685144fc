#include "reelgrad/plugin/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/base/error.h"

namespace reelgrad::vs {

std::string Arguments::text(const char* key, const std::string& fallback) const {
  if (!given(key)) return fallback;
  return {api_->mapGetData(in_, key, 0, nullptr), static_cast<std::size_t>(api_->mapGetDataSize(in_, key, 0, nullptr))};
}

std::int64_t Arguments::integer(const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
  if (!given(key)) return fallback;
  const std::int64_t value = api_->mapGetInt(in_, key, 0, nullptr);
  if (value >= least && value <= most) return value;
  fail_usage(fmt::format("{} is {}, allowed: {} to {}", key, value, least, most));
}

double Arguments::number(const char* key, double fallback, double least, double most) const {
  if (!given(key)) return fallback;
  const double value = api_->mapGetFloat(in_, key, 0, nullptr);
  if (value >= least && value <= most) return value;
  fail_usage(fmt::format("{} is {}, allowed: {} to {}", key, value, least, most));
}

bool Arguments::flag(const char* key, bool fallback) const {
  return integer(key, fallback ? 1 : 0, 0, 1) != 0;
}

std::size_t Arguments::choice(const char* key, std::initializer_list<std::string_view> words) const {
  const std::string word = text(key, std::string(*words.begin()));
  const auto* found = std::find(words.begin(), words.end(), word);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  fail_usage(fmt::format("{} is \"{}\", allowed: {}", key, word, in_words(words)));
}

NodeHandle Arguments::node(const char* key) const {
  return NodeHandle(given(key) ? api_->mapGetNode(in_, key, 0, nullptr) : nullptr, FreeNode{api_});
}

std::string in_words(std::initializer_list<std::string_view> words) {
  std::string sentence;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) sentence += i + 1 == words.size() ? " or " : ", ";
    sentence += fmt::format("\"{}\"", words.begin()[i]);
  }
  return sentence;
}

}  // namespace reelgrad::vs
