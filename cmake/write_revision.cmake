# Writes OUT (a header) for the checkout SOURCE; called at build time by revision.cmake.
find_package(Git QUIET)
set(revision "")
set(dirty 0)
if(GIT_FOUND)
  # The last commit that changed what a run computes: neither documents nor the launcher make a record stale.
  set(code strategies harness/strategy.cpp harness/network.hpp harness/random.cpp harness/towers.cpp
           harness/communicator harness/models harness/tasks harness/training
           ":(exclude)*.md" ":(exclude)strategies/reference*")
  # Nor does mere layout: see .git-blame-ignore-revs.
  file(STRINGS ${SOURCE}/.git-blame-ignore-revs layout REGEX "^[0-9a-f]+$")
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} log -20 --format=%H -- ${code}
                  OUTPUT_VARIABLE commits OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REPLACE "\n" ";" commits "${commits}")
  list(REMOVE_ITEM commits ${layout})
  if(commits)
    list(GET commits 0 revision)
    string(SUBSTRING ${revision} 0 12 revision)
  endif()
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} status --porcelain --untracked-files=no -- ${code}
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty 1)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#pragma once
#define BNLAB_VERSION "@VERSION@"
#define BNLAB_GIT_REVISION "@revision@"
#define BNLAB_GIT_DIRTY @dirty@
#define BNLAB_BUILD_TYPE "@BUILD_TYPE@"
]])
