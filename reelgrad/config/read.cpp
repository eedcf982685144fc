// Reading: TOML to Config, one visitor. Nothing is guessed: a value of another type, out of range or unknown is an
// error.
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/config/check.h"
#include "reelgrad/config/fields.h"
#include "reelgrad/config/source.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

// `"many" is a string`, `2.5 is a number`, `an array`
std::string describe(const toml::node& node) {
  if (node.is_array()) return "an array";
  if (node.is_table()) return "a table";
  if (const auto* text = node.as_string()) return fmt::format("\"{}\" is a string", text->get());
  if (const auto* number = node.as_integer()) return fmt::format("{} is an integer", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{} is a number", number->get());
  if (const auto* truth = node.as_boolean()) return fmt::format("{} is a boolean", truth->get());
  return "a date or time";
}

bool inside(double value, const Field& field) {
  const bool above = field.above_min ? value > field.min : value >= field.min;
  return above && value <= field.max;
}

// Text of a variable's value in a script's `args`.
std::optional<std::string> argument_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

// Reads one table. `prefix` is the table's own key: "data", "data.script[1]".
class Reader {
 public:
  Reader(Source& source, const toml::table* table, std::string prefix)
      : source_(source), table_(table), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(T& value, const Field& field) {
    if (const toml::node* node = find(field.key)) read(*node, full_key(field.key), value, field);
  }

  void options(ModelConfig& model);

  // A table of this name is read by itself.
  void allow(std::string_view key) { known_.emplace_back(key); }

  // Reports the keys that nobody asked for.
  void finish() {
    if (!table_ || any_key_allowed_) return;
    for (const auto& [key, node] : *table_) {
      if (std::ranges::find(known_, key.str()) != known_.end()) continue;
      const std::string full = full_key(key.str());
      source_.note_line(full, key.source().begin.line);
      source_.report(full, "unknown key" + hint(key.str(), known_));
    }
  }

 private:
  std::string full_key(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

  const toml::node* find(std::string_view key) {
    known_.emplace_back(key);
    const toml::node* node = table_ ? table_->get(key) : nullptr;
    const std::string full = full_key(key);
    if (node && !source_.setting(full)) source_.note_line(full, node->source().begin.line);
    return node;
  }

  void report_type(const toml::node& node, const std::string& key, std::string_view allowed) {
    source_.report(key, fmt::format("{}, allowed: {}", describe(node), allowed));
  }

  void read(const toml::node& node, const std::string& key, bool& value, const Field&) {
    const auto truth = node.value_exact<bool>();
    if (!truth) return report_type(node, key, "true or false");
    value = *truth;
  }

  template <std::integral T>
  void read(const toml::node& node, const std::string& key, T& value, const Field& field) {
    const auto number = node.value_exact<std::int64_t>();
    if (!number) return report_type(node, key, allowed_integer(field));
    if (!inside(static_cast<double>(*number), field)) {
      return source_.report(key, fmt::format("{} is out of range, allowed: {}", *number, allowed_integer(field)));
    }
    value = static_cast<T>(*number);
  }

  void read(const toml::node& node, const std::string& key, double& value, const Field& field) {
    if (!node.is_number()) return report_type(node, key, allowed_number(field));
    const double number = *node.value<double>();
    if (!std::isfinite(number) || !inside(number, field)) {
      return source_.report(key, fmt::format("{} is out of range, allowed: {}", number, allowed_number(field)));
    }
    value = number;
  }

  void read(const toml::node& node, const std::string& key, std::string& value, const Field& field) {
    auto text = string_of(node, key);
    if (!text && field.may_be_integer && node.is_integer()) text = std::to_string(node.as_integer()->get());
    if (!text) return report_type(node, key, allowed_string(field));
    if (!field.choices.empty()) {
      const auto known = split(field.choices, '|');
      if (std::ranges::find(known, *text) == known.end()) {
        return source_.report(key, fmt::format("unknown \"{}\"{}", *text, hint(*text, known)));
      }
    } else if (field.accepts && !field.accepts(*text)) {
      return source_.report(key, fmt::format("\"{}\" is not allowed, allowed: {}", *text, field.accepted));
    }
    value = *text;
  }

  void read(const toml::node& node, const std::string& key, fs::path& value, const Field& field) {
    const auto text = string_of(node, key);
    if (!text) return report_type(node, key, "a path");
    if (text->empty()) return value.clear();
    if (field.is_run_folder) {
      value = (fs::absolute(*text) / "").lexically_normal().parent_path();  // without a slash at its end
      return;
    }
    value = (source_.base() / *text).lexically_normal();
    std::error_code error;
    if (source_.files_must_exist() && !fs::exists(value, error)) {
      source_.report(key, fmt::format("\"{}\" does not exist (looked for {}){}{}", *text, value.string(),
                                      field.if_missing.empty() ? "" : ": ", field.if_missing));
    }
  }

  // A number, or a table in which the weight is 1 where it is not said.
  template <std::derived_from<LossWeight> T>
  void read(const toml::node& node, const std::string& key, T& value, const Field& field) {
    const toml::table* table = node.as_table();
    if (!table && !node.is_number()) return report_type(node, key, allowed_weight(value, field));
    if (!table) return read(node, key, value.weight, field);
    value.weight = 1;
    Reader reader(source_, table, key);
    fields(reader, value);
    reader.finish();
  }

  void read(const toml::node& node, const std::string& key, std::map<std::string, double>& value, const Field& field) {
    const toml::table* table = node.as_table();
    if (!table) return report_type(node, key, "a table { name = number }");
    value.clear();
    for (const auto& [name, item] : *table) {
      const std::string full = fmt::format("{}.{}", key, name.str());
      if (!source_.setting(key)) source_.note_line(full, name.source().begin.line);
      read(item, full, value[std::string(name.str())], field);
    }
  }

  void read(const toml::node& node, const std::string& key, std::vector<std::int64_t>& value, const Field& field) {
    const toml::array* array = node.as_array();
    if (!array) return report_type(node, key, allowed_integers(field));
    value.clear();
    for (std::size_t i = 0; i < array->size(); ++i) {
      read((*array)[i], fmt::format("{}[{}]", key, i), value.emplace_back(), field);
    }
  }

  void read(const toml::node& node, const std::string& key, std::vector<std::string>& value, const Field&) {
    const toml::array* array = node.as_array();
    if (!array) return report_type(node, key, "an array of strings");
    value.clear();
    for (std::size_t i = 0; i < array->size(); ++i) {
      const auto* text = (*array)[i].as_string();
      if (!text) return report_type((*array)[i], fmt::format("{}[{}]", key, i), "a string");
      value.push_back(text->get());
    }
  }

  void read(const toml::node& node, const std::string& key, std::vector<ParameterGroupConfig>& value, const Field&) {
    const toml::array* array = node.as_array();
    if (!array) return report_type(node, key, "an array of tables { match, lr_scale, weight_decay }");
    value.clear();
    for_each_item(*array, key,
                  [&](const toml::node& item, const std::string& name) { value.push_back(read_group(item, name)); });
  }

  // Calls read_one(item, "key[i]") for each, whose lines are noted for messages.
  template <class ReadOne>
  void for_each_item(const toml::array& array, const std::string& key, const ReadOne& read_one) {
    for (std::size_t i = 0; i < array.size(); ++i) {
      const std::string name = fmt::format("{}[{}]", key, i);
      if (!source_.setting(key)) source_.note_line(name, array[i].source().begin.line);
      read_one(array[i], name);
    }
  }

  ParameterGroupConfig read_group(const toml::node& node, const std::string& key) {
    ParameterGroupConfig group;
    const toml::table* table = node.as_table();
    if (!table) {
      report_type(node, key, "a table { match, lr_scale, weight_decay }");
      return group;
    }
    Reader reader(source_, table, key);
    fields(reader, group);
    reader.finish();
    if (group.match.empty()) source_.report(key, "match is missing: a pattern of parameter names");
    return group;
  }

  void read(const toml::node& node, const std::string& key, std::map<std::string, std::string>& value, const Field&) {
    const toml::table* table = node.as_table();
    if (!table) return report_type(node, key, "a table of variables { name = value }");
    value.clear();
    for (const auto& [name, item] : *table) {
      const auto text = argument_text(item);
      const std::string full = fmt::format("{}.{}", key, name.str());
      if (!text) {
        report_type(item, full, "a string, a number or a boolean");
      } else {
        value[std::string(name.str())] = *text;
      }
    }
  }

  void read(const toml::node& node, const std::string& key, std::vector<ScriptConfig>& value, const Field&) {
    value.clear();
    const toml::array* array = node.as_array();
    if (!array) return value.push_back(read_script(node, key));
    for_each_item(*array, key,
                  [&](const toml::node& item, const std::string& name) { value.push_back(read_script(item, name)); });
  }

  ScriptConfig read_script(const toml::node& node, const std::string& key) {
    ScriptConfig script;
    if (const toml::table* table = node.as_table()) {
      Reader reader(source_, table, key);
      fields(reader, script);
      reader.finish();
      if (!table->contains("path")) source_.report(key, "path is missing: the script");
      if (script.end != -1 && script.end <= script.start) {
        source_.report(key, fmt::format("end {} is not after start {}", script.end, script.start));
      }
    } else if (string_of(node, key)) {
      read(node, key, script.path, {});
      if (script.path.empty()) source_.report(key, "an empty path, allowed: a script");
    } else {
      report_type(node, key, "a path, or a table { path, weight, start, end, args }");
    }
    return script;
  }

  void read(const toml::node& node, const std::string& key, std::vector<PairsConfig>& value, const Field&) {
    value.clear();
    const toml::array* array = node.as_array();
    if (!array) return value.push_back(read_pairs(node, key));
    for_each_item(*array, key,
                  [&](const toml::node& item, const std::string& name) { value.push_back(read_pairs(item, name)); });
  }

  PairsConfig read_pairs(const toml::node& node, const std::string& key) {
    PairsConfig pairs;
    const toml::table* table = node.as_table();
    if (!table) {
      report_type(node, key, "a table { input, target, weight }");
      return pairs;
    }
    Reader reader(source_, table, key);
    fields(reader, pairs);
    reader.finish();
    for (const char* side : {"input", "target"}) {
      if (!table->contains(side)) source_.report(key, fmt::format("{} is missing: a folder of images", side));
    }
    for (const auto& [name, folder] : {std::pair{"input", &pairs.input}, std::pair{"target", &pairs.target}}) {
      if (table->contains(name)) check_folder(fmt::format("{}.{}", key, name), *folder);
    }
    return pairs;
  }

  void check_folder(const std::string& key, const fs::path& folder) {
    if (folder.empty()) return source_.report(key, "an empty path, allowed: a folder of images");
    std::error_code error;
    if (source_.files_must_exist() && fs::exists(folder, error) && !fs::is_directory(folder, error)) {
      source_.report(key, fmt::format("{} is a file, allowed: a folder of images", folder.string()));
    }
  }

  // A `--set` value that happens to be another TOML type is the string that was written: --set data.matrix_in=709.
  std::optional<std::string> string_of(const toml::node& node, const std::string& key) const {
    if (const auto* text = node.as_string()) return text->get();
    const std::string* written = source_.setting(key);
    if (written && node.is_value()) return *written;
    return std::nullopt;
  }

  std::string read_option(const ArchitectureOption& option) {
    const Field field = field_of(option);
    std::string text(option.default_value);
    if (option.kind == "int") {
      std::int64_t value = std::stoll(text);
      (*this)(value, field);
      return std::to_string(value);
    }
    if (option.kind == "bool") {
      bool value = text == "true";
      (*this)(value, field);
      return value ? "true" : "false";
    }
    if (option.kind == "ints") return read_integers_option(option, field);
    if (option.kind == "file") return read_file_option(option, field);
    (*this)(text, field);
    return text;
  }

  // As text: "6,6,6".
  std::string read_integers_option(const ArchitectureOption& option, const Field& field) {
    std::vector<std::int64_t> values;
    for (const std::string& word : split(option.default_value, ',')) values.push_back(std::stoll(word));
    (*this)(values, field);
    if (values.empty())
      source_.report(full_key(option.name), fmt::format("an empty array, allowed: {}", allowed_integers(field)));
    return fmt::format("{}", fmt::join(values, ","));
  }

  // As the absolute path.
  std::string read_file_option(const ArchitectureOption& option, const Field& field) {
    fs::path file;
    (*this)(file, field);
    if (file.empty() && !source_.has(full_key(option.name))) {
      source_.report(full_key(option.name), fmt::format("missing: {}", option.allowed));
    }
    return file.string();
  }

  Source& source_;
  const toml::table* table_;
  std::string prefix_;
  std::vector<std::string> known_;
  bool any_key_allowed_ = false;
};

void Reader::options(ModelConfig& model) {
  const ArchitectureEntry* entry = find_architecture(model.arch);
  if (!entry) {
    std::vector<std::string> known;
    for (const ArchitectureEntry& other : architectures()) known.emplace_back(other.name);
    const auto near = nearest(model.arch, known);
    source_.report(full_key("arch"),
                   fmt::format("unknown \"{}\" ({}known: {})", model.arch,
                               near ? fmt::format("did you mean \"{}\"? ", *near) : "", join(known, ", ")));
    any_key_allowed_ = true;  // they may be right for the architecture that was meant
    return;
  }
  if (std::ranges::find(entry->scales, model.scale) == entry->scales.end()) {
    source_.report(full_key("scale"), fmt::format("{} is not offered by {} (offered: {})", model.scale, model.arch,
                                                  fmt::join(entry->scales.begin(), entry->scales.end(), ", ")));
  }
  for (const ArchitectureOption& option : entry->options) model.options[std::string(option.name)] = read_option(option);
}

// Keys that are not given are as in the other section,
void begin_like(DiscriminatorOptimizer& own, const OptimizerConfig& other, bool /*given*/) {
  static_cast<OptimizerConfig&>(own) = other;
  own.no_decay.clear();  // patterns of another network's names
  own.groups.clear();
  own.accumulate = 1;
}

// but keys of one schedule are none of another's.
void begin_like(ScheduleConfig& own, const ScheduleConfig& other, bool given) {
  if (!given) own = other;
}

// Sections within others.
constexpr std::array<std::string_view, 2> kInnerSections{"discriminator.optimizer", "discriminator.schedule"};

// Visits the sections of a whole document.
class DocumentReader {
 public:
  DocumentReader(Source& source, const toml::table& root) : source_(source), root_(root) {}

  template <class T>
  void section(std::string_view name, std::string_view, T& value) {
    if (name.find('.') == std::string_view::npos) known_.emplace_back(name);
    const toml::node* node = root_.at_path(name).node();
    if (node) source_.note_line(std::string(name), node->source().begin.line);
    if (node && !node->is_table()) {
      source_.report(std::string(name), fmt::format("{}, allowed: a section [{}]", describe(*node), name));
    }
    Reader reader(source_, node ? node->as_table() : nullptr, std::string(name));
    fields(reader, value);
    for (const std::string_view inner : kInnerSections)
      if (inner.starts_with(fmt::format("{}.", name))) reader.allow(inner.substr(name.size() + 1));
    reader.finish();
  }

  template <class T, class Other>
  void section_like(std::string_view name, T& value, std::string_view, const Other& other) {
    begin_like(value, other, root_.at_path(name).is_table());
    section(name, "", value);
  }

  void finish() {
    for (const auto& [key, node] : root_) {
      if (std::ranges::find(known_, key.str()) != known_.end()) continue;
      const std::string name(key.str());
      if (key.source().begin.line > 0) source_.note_line(name, key.source().begin.line);
      source_.report(name,
                     (node.is_table() ? "unknown section" : "unknown key outside a section") + hint(name, known_));
    }
  }

 private:
  Source& source_;
  const toml::table& root_;
  std::vector<std::string> known_;
};

toml::table parse_document(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& problem) {
    fail_usage(fmt::format("{}:{}: not valid TOML: {}", name, problem.source().begin.line, problem.description()));
  }
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool is_loss_term(std::string_view key) {
  const auto terms = loss_weights({});
  return std::ranges::any_of(terms, [&](const auto& term) { return fmt::format("loss.{}", term.first) == key; });
}

// A term of the loss that is a number is a table that says its weight alone.
void make_table_of_weight(toml::table& section, std::string_view name, std::string_view key) {
  const toml::node* node = section.get(name);
  if (node == nullptr || !node->is_number() || !is_loss_term(key)) return;
  const double weight = *node->value<double>();
  section.insert_or_assign(name, toml::table{{"weight", weight}});
}

// `section.key=value`, put over what the file says. A value that is no TOML is a bare word, hence a string.
void apply_setting(toml::table& root, Source& source, std::string_view setting) {
  const std::size_t equals = setting.find('=');
  const std::string_view key = trimmed(setting.substr(0, equals));
  const std::size_t dot = key.find('.');
  const bool complete =
      equals != std::string_view::npos && dot != std::string_view::npos && dot > 0 && dot + 1 < key.size();
  if (!complete) fail_usage(fmt::format("--set {}: not of the form section.key=value", setting));
  const std::string value(trimmed(setting.substr(equals + 1)));
  source.note_setting(std::string(key), value);

  toml::table* table = &root;
  std::string_view name = key;
  for (std::size_t end = name.find('.'); end != std::string_view::npos; end = name.find('.')) {
    const std::string_view outer = name.substr(0, end);
    if (!table->contains(outer)) table->insert(outer, toml::table{});
    const bool is_section = table == &root;
    make_table_of_weight(*table, outer, key.substr(0, key.size() - name.size() + end));
    table = (*table)[outer].as_table();
    if (!table && is_section) return;  // the reader will say that the file has no such section
    if (!table) fail_usage(fmt::format("--set {}: {} is no table in the file", setting, key.substr(0, key.rfind('.'))));
    name = name.substr(end + 1);
  }
  try {
    const toml::table parsed = toml::parse("value = " + value);
    if (parsed.size() == 1) {
      table->insert_or_assign(name, *parsed.get("value"));
      return;
    }
  } catch (const toml::parse_error&) {
    // A bare word, which is what the next line takes it for.
  }
  table->insert_or_assign(name, value);
}

// A loss that was chosen stands alone, but for an adversary, which does not know the target.
void choose_loss(LossConfig& loss, const Source& source) {
  if (source.has("loss.charbonnier")) return;
  const bool another = std::ranges::any_of(loss_weights(loss), [](const auto& term) {
    return term.first != "charbonnier" && term.first != "gan" && term.second.on();
  });
  if (another) loss.charbonnier = 0;
}

void fill_defaults(Config& config, const Source& source) {
  if (config.run.name.empty()) config.run.name = fs::path(source.name()).stem().string();
  if (config.run.dir.empty()) config.run.dir = fs::absolute(fs::path("runs") / config.run.name);
}

std::string read_config_file(const fs::path& file) {
  try {
    return read_file(file);
  } catch (const Error& error) {
    fail_usage(fmt::format("the configuration cannot be read: {}", error.what()));
  }
}

Config parse(const std::string& toml, const std::string& name, const fs::path& base,
             const std::vector<std::string>& settings, bool files_must_exist) {
  toml::table root = parse_document(toml, name);
  Source source(name, fs::absolute(base), files_must_exist);
  for (const std::string& setting : settings) apply_setting(root, source, setting);

  Config config;
  DocumentReader reader(source, root);
  sections(reader, config);
  reader.finish();
  choose_loss(config.loss, source);
  // Rules between keys only make sense for keys that are right by themselves.
  if (!source.has_problems()) check_rules(config, source);
  source.throw_problems();
  // A run that exists has been warned of.
  if (files_must_exist) std::ranges::for_each(source.warnings(), log::warning);
  fill_defaults(config, source);
  return config;
}

}  // namespace

Config parse_config(const std::string& toml, const std::string& name, const fs::path& base,
                    const std::vector<std::string>& settings) {
  return parse(toml, name, base, settings, true);
}

Config load_config(const fs::path& file, const std::vector<std::string>& settings) {
  return parse(read_config_file(file), file.string(), fs::absolute(file).parent_path(), settings, true);
}

Config load_saved_config(const fs::path& file) {
  return parse(read_config_file(file), file.string(), fs::absolute(file).parent_path(), {}, false);
}

}  // namespace reelgrad
