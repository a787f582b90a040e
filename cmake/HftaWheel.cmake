# What a wheel holds, below site-packages: hfta/_core*.so, hfta/lib/libhfta.so.0 and hfta/bin/hfta. LibTorch is the one of the torch beside it.
set_target_properties(hfta PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
set_target_properties(hfta_python PROPERTIES INSTALL_RPATH "$ORIGIN/lib:$ORIGIN/../torch/lib")
set_target_properties(hfta_command PROPERTIES INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN/../../torch/lib")
# A wheel keeps no links: the library goes by the one name that is asked for.
set_target_properties(hfta PROPERTIES VERSION 0)
install(TARGETS hfta LIBRARY DESTINATION hfta/lib NAMELINK_SKIP)
install(TARGETS hfta_python LIBRARY DESTINATION hfta)
install(TARGETS hfta_command RUNTIME DESTINATION hfta/bin)
# Not an entry point: that would import the package, and with it torch, before the program starts.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/python/command.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME hfta)
