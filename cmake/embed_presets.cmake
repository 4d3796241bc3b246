# cmake -DOUT=presets.cc "-DFILES=a.toml;b.toml" -P embed_presets.cmake
# Writes the definition of ulmus::train::Presets(): one entry per file, named as the file.
set(entries "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(FIND "${text}" ")preset\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${file}: holds )preset\", which ends the literal it is embedded in")
  endif()
  string(APPEND entries "    {\"${name}\", R\"preset(${text})preset\"},\n")
endforeach()
file(WRITE ${OUT} "// Made from presets/*.toml by cmake/embed_presets.cmake.
#include \"train/run_config.h\"

namespace ulmus::train {

std::span<const RecipeSource> Presets() {
  static const std::vector<RecipeSource> presets = {
${entries}  };
  return presets;
}

}  // namespace ulmus::train
")
