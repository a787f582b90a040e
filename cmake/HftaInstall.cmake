# What a person gets from `cmake --install`: the library, every header, the command, and the files for find_package(hfta).
include(CMakePackageConfigHelpers)

set(hfta_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hfta)
# Beside each other wherever the folder is moved to; LibTorch stays where it was found.
set_target_properties(hfta PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS hfta EXPORT hftaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/hfta DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT hftaTargets NAMESPACE hfta:: DESTINATION ${hfta_config_dir})

if(TARGET hfta_command)
  set_target_properties(hfta_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS hfta_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/hftaConfig.cmake.in ${PROJECT_BINARY_DIR}/hftaConfig.cmake INSTALL_DESTINATION ${hfta_config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hftaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hftaConfig.cmake ${PROJECT_BINARY_DIR}/hftaConfigVersion.cmake DESTINATION ${hfta_config_dir})
