# Parsing LibTorch's headers costs more than most sources do, so an area's sources are compiled together. Names in the unnamed
# namespaces of one area must not clash; HFTA_UNITY=OFF compiles each by itself, which is quicker after small changes.
option(HFTA_UNITY "Compile the sources of an area together" ON)

# hfta_sources(TARGET GROUP file...): sources of TARGET in one group.
function(hfta_sources target group)
  target_sources(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HFTA_UNITY} UNITY_BUILD_MODE GROUP)
  # g++ takes a source that another includes for a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
endfunction()
