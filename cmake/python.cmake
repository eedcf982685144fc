# The Python environment that holds torch and VapourSynth: pip's own where it builds the wheel, else REELGRAD_PYTHON
# (environment, then cache), the checkout's .venv, an activated environment, or python3 on PATH. Sets REELGRAD_PYTHON, REELGRAD_TORCH_DIR, REELGRAD_TORCH_VERSION,
# REELGRAD_TORCH_CUDA, REELGRAD_VS_DIR and REELGRAD_NVIDIA_DIR.
set(remedy "run scripts/setup.sh, or set REELGRAD_PYTHON")
if(SKBUILD)
  set(REELGRAD_PYTHON ${Python_EXECUTABLE})
  set(remedy "install them first (pip install torch==2.11.0 vapoursynth), then pip install --no-build-isolation .")
elseif(DEFINED ENV{REELGRAD_PYTHON})
  set(REELGRAD_PYTHON $ENV{REELGRAD_PYTHON})
elseif(NOT REELGRAD_PYTHON)
  if(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
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
  message(FATAL_ERROR "${REELGRAD_PYTHON} lacks torch or vapoursynth: ${remedy}")
endif()
list(GET located 0 REELGRAD_TORCH_DIR)
list(GET located 1 REELGRAD_TORCH_VERSION)
list(GET located 2 REELGRAD_TORCH_CUDA)
list(GET located 3 REELGRAD_VS_DIR)
list(GET located 4 REELGRAD_NVIDIA_DIR)

# nvcc and Torch's own finds stay in the cache: they would not follow another torch.
set(found_torch "torch ${REELGRAD_TORCH_VERSION} in ${REELGRAD_TORCH_DIR}")
if(REELGRAD_CONFIGURED_TORCH AND NOT REELGRAD_CONFIGURED_TORCH STREQUAL found_torch)
  message(FATAL_ERROR "this build folder was made for ${REELGRAD_CONFIGURED_TORCH}, the environment now has "
                      "${found_torch}: start it afresh with cmake --fresh --preset …")
endif()
set(REELGRAD_CONFIGURED_TORCH ${found_torch} CACHE INTERNAL "what this build folder was made for")
