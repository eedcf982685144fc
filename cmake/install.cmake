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
