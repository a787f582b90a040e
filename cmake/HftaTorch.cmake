# Finds LibTorch: Torch_DIR or CMAKE_PREFIX_PATH when given, else the torch of the active Python.
if(NOT DEFINED Torch_DIR AND NOT CMAKE_PREFIX_PATH MATCHES "torch")
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE hfta_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE hfta_torch_missing ERROR_QUIET)
  if(hfta_torch_missing)
    message(FATAL_ERROR "hfta: ${Python3_EXECUTABLE} has no torch: run ./dev setup, or give -DTorch_DIR=<torch>/share/cmake/Torch")
  endif()
  list(APPEND CMAKE_PREFIX_PATH ${hfta_torch_prefix})
endif()
# An installed hfta asks for the same.
set(hfta_torch_version 2.13)
find_package(Torch ${hfta_torch_version} REQUIRED)
