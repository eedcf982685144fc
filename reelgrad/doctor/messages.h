// Every sentence that the doctor says, in each language: one table, so that a test can see that none is missing.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

enum class Language { english, chinese };

// --lang ("zh", "en", "zh-CN"…) decides; when it is empty the first of LC_ALL, LC_MESSAGES and LANG that is set does.
Language language_from(std::string_view lang_option, const std::map<std::string, std::string>& environment);

// What a sentence's placeholders stand for: {"card", "cuda:0"} for "{card}".
using Values = std::map<std::string, std::string>;

// A sentence before it is put into words.
struct Phrase {
  std::string key;
  Values values;
};

struct PhraseText {
  std::string_view key, english, chinese;
};

std::span<const PhraseText> all_phrases();
bool has_phrase(std::string_view key);

// Throws failed for a key that the table has not, and fmt::format_error for a value that is missing.
std::string in_words(const Phrase& phrase, Language language);

// One after another, as sentences are.
std::string sentences(const std::vector<Phrase>& phrases, Language language);

// One after another, as the items of a list are.
std::string listed(const std::vector<Phrase>& phrases, Language language);

}  // namespace reelgrad
