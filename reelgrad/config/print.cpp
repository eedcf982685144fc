// Config to text: TOML, differences, and the reference page. Visitors of fields.h.
#include <fmt/format.h>

#include "reelgrad/base/text.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/config/config.h"
#include "reelgrad/config/fields.h"

namespace reelgrad {
namespace {

std::string to_text(bool value) {
  return value ? "true" : "false";
}
template <std::integral T>
std::string to_text(T value) {
  return std::to_string(value);
}
std::string to_text(double value) {
  return fmt::format("{}", value);
}  // the shortest that reads back the same
std::string to_text(const std::string& value) {
  return string_literal(value);
}
std::string to_text(const std::filesystem::path& value) {
  return string_literal(value.string());
}
std::string to_text(const std::vector<std::int64_t>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}

std::string to_text(const std::map<std::string, std::string>& value) {
  std::vector<std::string> items;
  for (const auto& [name, text] : value)
    items.push_back(fmt::format("{} = {}", string_literal(name), string_literal(text)));
  return items.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(items, ", "));
}

std::string to_text(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const std::string& value : values) items.push_back(string_literal(value));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string to_text(const std::map<std::string, double>& value) {
  std::vector<std::string> items;
  for (const auto& [name, number] : value) items.push_back(fmt::format("{} = {}", name, number));
  return fmt::format("{{ {} }}", fmt::join(items, ", "));
}

template <std::derived_from<LossWeight> T>
std::string to_text(const T& weight);
std::string to_text(const std::vector<ScriptConfig>& scripts);
std::string to_text(const std::vector<PairsConfig>& pairs);
std::string to_text(const std::vector<ParameterGroupConfig>& groups);

// Of an option, whose value is text: as TOML.
std::string to_text(const ArchitectureOption& option, std::string_view value) {
  if (option.kind == "choice" || option.kind == "file") return string_literal(value);
  return option.kind == "ints" ? fmt::format("[{}]", join(split(value, ','), ", ")) : std::string(value);
}

struct Entry {
  std::string section, key, value;
};

// Every key with its value as TOML text, in the order of fields.h.
class Printer {
 public:
  template <class T>
  void operator()(T& value, const Field& field) {
    entries_.push_back({section_, std::string(field.key), to_text(value)});
  }

  void options(const ModelConfig& model) {
    const ArchitectureEntry* entry = find_architecture(model.arch);
    if (!entry) return;
    for (const ArchitectureOption& option : entry->options) {
      const auto set = model.options.find(std::string(option.name));
      const std::string text(set == model.options.end() ? option.default_value : set->second);
      entries_.push_back({section_, std::string(option.name), to_text(option, text)});
    }
  }

  template <class T>
  void section(std::string_view name, std::string_view, T& value) {
    section_ = name;
    fields(*this, value);
  }

  template <class T, class Other>
  void section_like(std::string_view name, T& value, std::string_view, const Other&) {
    section(name, "", value);
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::string section_;
  std::vector<Entry> entries_;
};

template <class T>
std::string table_text(T table) {
  Printer printer;
  fields(printer, table);
  std::vector<std::string> items;
  for (const Entry& entry : printer.entries()) items.push_back(fmt::format("{} = {}", entry.key, entry.value));
  return fmt::format("{{ {} }}", fmt::join(items, ", "));
}

template <class T>
std::string tables_text(const std::vector<T>& list) {
  std::vector<std::string> tables;
  for (const T& table : list) tables.push_back(table_text(table));
  return fmt::format("[{}]", fmt::join(tables, ", "));
}

// The number alone where that reads back the same.
template <std::derived_from<LossWeight> T>
std::string to_text(const T& weight) {
  return weight == T(weight.weight) ? to_text(weight.weight) : table_text(weight);
}

std::string to_text(const std::vector<ScriptConfig>& scripts) {
  return tables_text(scripts);
}
std::string to_text(const std::vector<PairsConfig>& pairs) {
  return tables_text(pairs);
}
std::string to_text(const std::vector<ParameterGroupConfig>& groups) {
  return tables_text(groups);
}

std::vector<Entry> entries_of(Config config) {  // a copy: visitors take what they may change
  Printer printer;
  sections(printer, config);
  return printer.entries();
}

std::string allowed_of(const bool&, const Field&) {
  return "true or false";
}
template <std::integral T>
std::string allowed_of(const T&, const Field& field) {
  return allowed_integer(field);
}
std::string allowed_of(const double&, const Field& field) {
  return allowed_number(field);
}
std::string allowed_of(const std::string&, const Field& field) {
  return allowed_string(field);
}
std::string allowed_of(const std::filesystem::path&, const Field&) {
  return "a path";
}
std::string allowed_of(const std::map<std::string, std::string>&, const Field&) {
  return "a table of variables";
}
std::string allowed_of(const std::vector<std::int64_t>&, const Field& field) {
  return allowed_integers(field);
}
std::string allowed_of(const std::map<std::string, double>&, const Field& field) {
  return "a table of numbers" + allowed_number(field).substr(std::string_view("a number").size());
}
template <std::derived_from<LossWeight> T>
std::string allowed_of(const T&, const Field& field) {
  return allowed_number(field) + ", or a table";
}
std::string allowed_of(const std::vector<ScriptConfig>&, const Field&) {
  return "a path, or an array of paths and tables { path, weight, start, end, args }";
}

std::string allowed_of(const std::vector<std::string>&, const Field&) {
  return "an array of strings";
}

std::string allowed_of(const std::vector<ParameterGroupConfig>&, const Field&) {
  return "an array of tables { match, lr_scale, weight_decay }";
}

std::string allowed_of(const std::vector<PairsConfig>&, const Field&) {
  return "a table { input, target, weight }, or an array of them";
}

template <class Visit>
void for_each_loss_table(const Visit& visit) {
  visit("perceptual", PerceptualConfig());
  visit("lpips", LpipsConfig());
  visit("dists", DistsConfig());
  visit("focal_frequency", FocalFrequencyConfig());
  visit("ldl", LdlConfig());
  visit("wavelet", WaveletConfig());
  visit("color", ColorLossConfig());
  visit("gan", GanConfig());
}

// The reference page.
class Reference {
 public:
  template <class T>
  void operator()(T& value, const Field& field) {
    const std::string standard =
        field.default_text.empty() ? fmt::format("`{}`", to_text(value)) : std::string(field.default_text);
    row(field, allowed_of(value, field), standard);
  }

  void options(const ModelConfig&) {}  // a table for each architecture, below

  template <class T>
  void section(std::string_view name, std::string_view help, T& value) {
    heading(fmt::format("## [{}]", name), help);
    fields(*this, value);
  }

  template <class T, class Other>
  void section_like(std::string_view name, T&, std::string_view other, const Other&) {
    text_ += fmt::format("\n## [{}]\n\n{}\n", name, like(other, T{}));
  }

  void tables() {
    heading("## Tables in data.script and validation.script", "A script with more than its path.");
    ScriptConfig script;
    fields(*this, script);
    heading("## Tables in data.pairs and validation.pairs", "Two folders of images.");
    PairsConfig pairs;
    fields(*this, pairs);
    heading("## Tables in [loss]", "A weight that is not the same from the first step to the last.");
    LossWeight weight;
    fields(*this, weight);
    for_each_loss_table([this](const char* key, auto table) {
      heading(fmt::format("## loss.{}", key), "Beside the number alone, its weight.");
      fields(*this, table);
    });
    heading("## Tables in optimizer.groups", "Some parameters with settings of their own.");
    ParameterGroupConfig group;
    fields(*this, group);
  }

  void architecture(const ArchitectureEntry& entry) {
    heading(fmt::format("## [model] with arch = \"{}\"", entry.name),
            fmt::format("{}. Scales: {}.", entry.help, fmt::join(entry.scales.begin(), entry.scales.end(), ", ")));
    for (const ArchitectureOption& option : entry.options) {
      const Field field = field_of(option);
      row(field, allowed_of_option(option, field), default_of_option(option));
    }
  }

  const std::string& text() const { return text_; }

 private:
  static std::string like(std::string_view other, const DiscriminatorOptimizer&) {
    return fmt::format(
        "The keys of [{}] but `accumulate`; those that are not given are as there, but for `no_decay` and "
        "`groups`.",
        other);
  }
  static std::string like(std::string_view other, const ScheduleConfig&) {
    return fmt::format("The keys of [{}]. Without this section the discriminator has the schedule of that one.", other);
  }

  static std::string allowed_of_option(const ArchitectureOption& option, const Field& field) {
    if (option.kind == "file") return "a path";
    if (option.kind == "choice") return allowed_string(field);
    if (option.kind == "ints") return allowed_integers(field);
    return option.kind == "int" ? allowed_integer(field) : "true or false";
  }

  static std::string default_of_option(const ArchitectureOption& option) {
    if (option.kind == "file") return "required";
    return fmt::format("`{}`", to_text(option, option.default_value));
  }

  void heading(std::string_view title, std::string_view help) {
    text_ += fmt::format("\n{}\n\n{}\n\n| key | allowed | default | meaning |\n|---|---|---|---|\n", title, help);
  }

  void row(const Field& field, std::string_view allowed, std::string_view standard) {
    const std::string unit = field.unit.empty() ? "" : fmt::format(" ({})", field.unit);
    text_ += fmt::format("| `{}` | {}{} | {} | {} |\n", field.key, allowed, unit, standard, field.help);
  }

  std::string text_;
};

}  // namespace

std::string to_toml(const Config& config) {
  std::string text, section;
  for (const Entry& entry : entries_of(config)) {
    if (entry.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", entry.section);
      section = entry.section;
    }
    text += fmt::format("{} = {}\n", entry.key, entry.value);
  }
  return text;
}

std::vector<std::string> differences(const Config& a, const Config& b) {
  std::map<std::string, std::string> before, after;
  std::vector<std::string> order;
  for (const Entry& entry : entries_of(a)) {
    order.push_back(fmt::format("{}.{}", entry.section, entry.key));
    before[order.back()] = entry.value;
  }
  for (const Entry& entry : entries_of(b)) {
    const std::string key = fmt::format("{}.{}", entry.section, entry.key);
    if (!before.contains(key)) order.push_back(key);  // another architecture's option
    after[key] = entry.value;
  }
  const auto value_in = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("(none)") : found->second;
  };
  std::vector<std::string> lines;
  for (const std::string& key : order) {
    const std::string from = value_in(before, key), to = value_in(after, key);
    if (from != to) lines.push_back(fmt::format("{}: {} -> {}", key, from, to));
  }
  return lines;
}

std::string config_reference() {
  Reference reference;
  Config defaults;
  sections(reference, defaults);
  reference.tables();
  for (const ArchitectureEntry& entry : architectures()) reference.architecture(entry);
  return "# The configuration file\n\nTOML. Paths are relative to the file, but for `run.dir`, which is relative to "
         "the working "
         "directory. An unknown key, a\nvalue of another type or out of range is an error, and nothing is touched.\n" +
         reference.text();
}

}  // namespace reelgrad
