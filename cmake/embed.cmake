# Writes OUTPUT, a C++ file that defines reelgrad::cli::example(name) over the contents of FILES.
set(code "#include \"reelgrad/cli/templates.h\"\n\nnamespace reelgrad::cli {\n\nstd::string_view example(std::string_view name) {\n")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND code "  if (name == \"${name}\") return R\"embedded(${text})embedded\";\n")
endforeach()
string(APPEND code "  return {};\n}\n\n}  // namespace reelgrad::cli\n")
file(WRITE ${OUTPUT} "${code}")
