// Where the values of one configuration came from, and what is wrong with them. For config/'s own use.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

class Source {
 public:
  Source(std::string name, std::filesystem::path base, bool files_must_exist)
      : name_(std::move(name)), base_(std::move(base)), files_must_exist_(files_must_exist) {}

  const std::string& name() const { return name_; }
  const std::filesystem::path& base() const { return base_; }  // relative paths are taken against it

  bool files_must_exist() const { return files_must_exist_; }

  // `key` stands in this line of the file; or was set by `--set key=value`. What lies in the value of a setting stands
  // in no line.
  void note_line(const std::string& key, std::uint32_t line);
  void note_setting(const std::string& key, std::string_view value);
  bool has(const std::string& key) const { return lines_.contains(key) || settings_.contains(key); }
  bool has_within(const std::string& section) const;         // the section, or one of its keys as a setting
  const std::string* setting(const std::string& key) const;  // its value as it was written, or nullptr

  // Adds `file:line: key: text`.
  void report(const std::string& key, std::string_view text);
  bool has_problems() const { return !problems_.empty(); }
  // The same for what is allowed, but hardly meant.
  void warn(const std::string& key, std::string_view text);

  // Throws usage with every problem, a line each, in the file's order.
  void throw_problems() const;
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Place {
    std::uint32_t line = 0;
    std::string text;
  };
  struct Problem {
    std::uint32_t line;
    std::string text;
  };
  Place place_of(const std::string& key) const;

  std::string name_;
  std::filesystem::path base_;
  bool files_must_exist_;
  std::map<std::string, std::uint32_t> lines_;
  std::map<std::string, std::string> settings_;
  std::vector<Problem> problems_;
  std::vector<std::string> warnings_;
};

// " (did you mean "lr"?)", or " (known: a, b)" when nothing is near.
std::string hint(std::string_view word, std::span<const std::string> known);

}  // namespace reelgrad
