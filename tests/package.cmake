# Installs hfta from `build`, then builds and runs what a person would: a program and a plug-in in projects of their own.
set(prefix ${build}/package/installed)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${prefix})
run(${CMAKE_COMMAND} --install ${build} --prefix ${prefix})
foreach(project consumer plugin)
  set(folder ${build}/package/${project})
  file(REMOVE_RECURSE ${folder})
  run(${CMAKE_COMMAND} -S ${source}/examples/${project} -B ${folder} -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${prefix}
    -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher})
  run(${CMAKE_COMMAND} --build ${folder})
endforeach()
run(${build}/package/consumer/consumer ${build}/package/plugin/libresidual_net.so)
