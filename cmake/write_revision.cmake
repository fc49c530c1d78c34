# Writes OUT (a source) for the checkout SOURCE; called at build time by revision.cmake.
find_package(Git QUIET)
set(revision "")
set(dirty false)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} status --porcelain -- harness strategies cmake
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
execute_process(COMMAND ${PYTHON} ${SOURCE}/cmake/fingerprint.py ${SOURCE}
                OUTPUT_VARIABLE fingerprints OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" " " fingerprints "${fingerprints}")
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#include "harness/support/revision.hpp"

const bnlab::Revision bnlab::kRevision = {
    .version = "@VERSION@",
    .git = "@revision@",
    .dirty = @dirty@,
    .fingerprints = "@fingerprints@",
    .build_type = "@BUILD_TYPE@",
};
]])
