# cmake --install BUILD --prefix PREFIX: the programs, and the CMake package `reelgrad` for programs that load frames
# and for networks in modules.
include(CMakePackageConfigHelpers)

# Plain "lib": the engine is looked for in ../lib of the program.
install(TARGETS reelgrad RUNTIME DESTINATION bin)
install(TARGETS reelgrad_engine reelgrad_vs LIBRARY DESTINATION lib)
foreach(header IN ITEMS base/api.h base/error.h frames/loader.h nn/module.h nn/network.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES reelgrad/${header} DESTINATION include/reelgrad/${folder})
endforeach()

configure_package_config_file(cmake/reelgradConfig.cmake.in ${CMAKE_BINARY_DIR}/package/reelgradConfig.cmake
  INSTALL_DESTINATION lib/cmake/reelgrad)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/reelgradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/reelgradConfig.cmake ${CMAKE_BINARY_DIR}/package/reelgradConfigVersion.cmake
  DESTINATION lib/cmake/reelgrad)

# The wheel (pyproject.toml), and what a test installs into a Python environment of its own:
# cmake --install BUILD --component wheel --prefix SITE_PACKAGES, which puts the program into ../../../bin.
# The engine lies beside the plugin, where the program looks for it too (open_engine.cpp).
set(REELGRAD_WHEEL_SCRIPTS ../../../bin)
if(SKBUILD)
  set(REELGRAD_WHEEL_SCRIPTS ${SKBUILD_SCRIPTS_DIR})
endif()
set(wheel_plugin vapoursynth/plugins/reelgrad)
install(TARGETS reelgrad RUNTIME DESTINATION ${REELGRAD_WHEEL_SCRIPTS} COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS reelgrad_engine reelgrad_vs LIBRARY DESTINATION ${wheel_plugin} COMPONENT wheel EXCLUDE_FROM_ALL)
# VapourSynth opens only what it names: not the engine.
install(FILES cmake/manifest.vs DESTINATION ${wheel_plugin} COMPONENT wheel EXCLUDE_FROM_ALL)
