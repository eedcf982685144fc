# The Python environment that holds torch and VapourSynth: REELGRAD_PYTHON (cache or environment), the checkout's .venv,
# an activated environment, or python3 on PATH. Sets REELGRAD_PYTHON, REELGRAD_SITE, REELGRAD_TORCH_DIR, REELGRAD_VS_DIR.
if(NOT REELGRAD_PYTHON)
  if(DEFINED ENV{REELGRAD_PYTHON})
    set(REELGRAD_PYTHON $ENV{REELGRAD_PYTHON})
  elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    set(REELGRAD_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  elseif(DEFINED ENV{VIRTUAL_ENV})
    set(REELGRAD_PYTHON $ENV{VIRTUAL_ENV}/bin/python)
  else()
    find_program(REELGRAD_PYTHON3 NAMES python3 REQUIRED)
    set(REELGRAD_PYTHON ${REELGRAD_PYTHON3})
  endif()
endif()
set(REELGRAD_PYTHON ${REELGRAD_PYTHON} CACHE FILEPATH "Python of the environment with torch and vapoursynth" FORCE)

execute_process(
  COMMAND ${REELGRAD_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/locate.py
  OUTPUT_VARIABLE located OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${REELGRAD_PYTHON} lacks torch or vapoursynth: run scripts/setup.sh, or set REELGRAD_PYTHON")
endif()
list(GET located 0 REELGRAD_TORCH_DIR)
list(GET located 1 REELGRAD_TORCH_VERSION)
list(GET located 2 REELGRAD_TORCH_CUDA)
list(GET located 3 REELGRAD_VS_DIR)
list(GET located 4 REELGRAD_NVIDIA_DIR)
