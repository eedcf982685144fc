#include "reelgrad/doctor/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/diagnose.h"

namespace reelgrad {
namespace {

std::set<std::string> placeholders(std::string_view text) {
  static const std::regex kPlaceholder(R"(\{[a-z_]+\})");
  const std::string copy(text);
  std::set<std::string> found;
  for (std::sregex_iterator match(copy.begin(), copy.end(), kPlaceholder), end; match != end; ++match)
    found.insert(match->str());
  return found;
}

// Three English words of prose in a row. Commands, names and what programs say in English are no prose.
bool has_english_sentence(std::string_view chinese) {
  static const std::regex kProse(R"((^|[^a-z])(the|is|are|of|and|or|to|not|it|this|that) [a-z]+ [a-z]+)");
  return std::regex_search(std::string(chinese), kProse);
}

TEST(Messages, EverySentenceHasBothLanguagesWithTheSamePlaceholders) {
  std::set<std::string_view> keys;
  for (const PhraseText& phrase : all_phrases()) {
    EXPECT_FALSE(phrase.english.empty()) << phrase.key;
    EXPECT_FALSE(phrase.chinese.empty()) << phrase.key;
    EXPECT_EQ(placeholders(phrase.english), placeholders(phrase.chinese)) << phrase.key;
    EXPECT_TRUE(keys.insert(phrase.key).second) << phrase.key << " is there twice";
  }
}

TEST(Messages, ChineseHasNoEnglishSentenceAndEnglishNoChinese) {
  for (const PhraseText& phrase : all_phrases()) {
    EXPECT_FALSE(has_english_sentence(phrase.chinese)) << phrase.key << ": " << phrase.chinese;
    for (const char c : phrase.english) EXPECT_LT(static_cast<unsigned char>(c), 0xE3) << phrase.key;
  }
  EXPECT_TRUE(has_english_sentence("驱动 the driver of this"));
}

TEST(Messages, SentencesOfProseAreTranslated) {
  for (const PhraseText& phrase : all_phrases()) {
    const bool is_prose =
        phrase.key.find(".what") != std::string_view::npos || phrase.key.find(".fix") != std::string_view::npos;
    if (!is_prose || phrase.key.starts_with("report.")) continue;
    EXPECT_NE(phrase.english, phrase.chinese) << phrase.key;
    EXPECT_TRUE(phrase.english.ends_with('.') || phrase.english.ends_with(')')) << phrase.key;
    EXPECT_TRUE(phrase.chinese.ends_with("。")) << phrase.key;
  }
}

TEST(Messages, EveryCodeHasItsSentence) {
  for (const std::string_view code : all_codes()) {
    std::string_view own = code;
    // Somebody's own environment has the sentences of reelgrad's own.
    if (own.starts_with("PYTHON_") && !has_phrase(std::string(own) + ".what")) own.remove_prefix(7);
    EXPECT_TRUE(has_phrase(std::string(own) + ".what")) << code;
  }
}

TEST(Messages, ValuesAreSetIn) {
  const Phrase phrase{"TORCH_VERSION_MISMATCH.found", {{"dir", "/a{b}"}, {"version", "1"}, {"wanted", "2"}}};
  EXPECT_EQ(in_words(phrase, Language::english), "/a{b} is 1, wanted is 2");
  EXPECT_EQ(in_words(phrase, Language::chinese), "/a{b} 是 1，需要 2");
  EXPECT_THROW(in_words({"no such sentence", {}}, Language::english), Error);
}

struct LanguageCase {
  const char* option;
  std::map<std::string, std::string> environment;
  Language expected;
};

TEST(Messages, TheOptionAndThenTheLocaleChooseTheLanguage) {
  constexpr Language kEnglish = Language::english, kChinese = Language::chinese;
  for (const LanguageCase& c :
       std::initializer_list<LanguageCase>{{"", {}, kEnglish},
                                           {"zh", {}, kChinese},
                                           {"zh-CN", {{"LANG", "en_US.UTF-8"}}, kChinese},
                                           {"en", {{"LANG", "zh_CN.UTF-8"}}, kEnglish},
                                           {"", {{"LANG", "zh_CN.UTF-8"}}, kChinese},
                                           {"", {{"LANG", "zh_CN.UTF-8"}, {"LC_ALL", "C"}}, kEnglish},
                                           {"", {{"LANG", "zh_CN.UTF-8"}, {"LC_ALL", ""}}, kChinese},
                                           {"", {{"LANG", "de_DE"}, {"LC_MESSAGES", "zh_TW"}}, kChinese},
                                           {"", {{"LANGUAGE", "zh"}}, kEnglish}}) {
    EXPECT_EQ(language_from(c.option, c.environment), c.expected) << c.option;
  }
}

}  // namespace
}  // namespace reelgrad
