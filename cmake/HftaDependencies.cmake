# What hfta takes from the system's packages. A wheel must run where none of them is: HFTA_BUNDLED makes them parts of what is built.
option(HFTA_BUNDLED "Link spdlog, fmt, SQLite, zlib and toml++ statically" OFF)

find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

if(HFTA_BUNDLED)
  find_package(fmt REQUIRED)
  find_library(HFTA_SQLITE_ARCHIVE libsqlite3.a REQUIRED)
  find_library(HFTA_ZLIB_ARCHIVE libz.a REQUIRED)
  mark_as_advanced(HFTA_SQLITE_ARCHIVE HFTA_ZLIB_ARCHIVE)
  set(hfta_log_libraries spdlog::spdlog_header_only fmt::fmt-header-only)
  # Python loads other copies of these in the same process: none may see ours.
  set(hfta_libraries ${HFTA_SQLITE_ARCHIVE} ${HFTA_ZLIB_ARCHIVE} -Wl,--exclude-libs,ALL
    -Wl,--version-script,${CMAKE_CURRENT_LIST_DIR}/bundled.map)
  add_library(hfta_toml INTERFACE)
  target_compile_definitions(hfta_toml INTERFACE TOML_HEADER_ONLY=1)
  set(hfta_toml_libraries hfta_toml)
else()
  set(hfta_log_libraries spdlog::spdlog)
  set(hfta_libraries spdlog SQLite::SQLite3 ZLIB::ZLIB)
  set(hfta_toml_libraries tomlplusplus::tomlplusplus)
endif()
