# Headers take most of the time that a file takes to compile, and LibTorch's take five seconds of each object even where they
# are precompiled. So the files of a folder are compiled together, in groups that a change to one of them compiles again: 24
# suit a first build, 8 somebody who edits. Only presets with CMAKE_UNITY_BUILD do so. Within a folder no two files may give
# the same name to different things in unnamed namespaces; a component's file has a namespace of its own. Folders that are
# named in one argument, "harness/a|harness/b", count as one.
set(BNLAB_TOGETHER 24 CACHE STRING "Files of a folder that are compiled as one")

function(bnlab_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  set(folders "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    foreach(joined IN LISTS ARGN)
      string(REPLACE "|" ";" joined ${joined})
      if(folder IN_LIST joined)
        list(GET joined 0 folder)
      endif()
    endforeach()
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND files_of_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(REMOVE_DUPLICATES files_of_${folder})
    list(LENGTH files_of_${folder} count)
    set(place 0)
    foreach(source IN LISTS files_of_${folder})
      math(EXPR group "${place} * ((${count} + ${BNLAB_TOGETHER} - 1) / ${BNLAB_TOGETHER}) / ${count}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
      math(EXPR place "${place} + 1")
    endforeach()
  endforeach()
endfunction()

# Compiles quickly what no training step waits for.
function(bnlab_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
