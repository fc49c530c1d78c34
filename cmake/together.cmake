# Headers take most of the time that a file takes to compile, so the files of a folder are compiled together: in
# groups of at most twelve, which a change to one of them compiles again. Only presets with CMAKE_UNITY_BUILD
# do so. Within a folder no two files may give the same name to different things in unnamed namespaces; a component's
# file has a namespace of its own. Small folders that are named in one argument, "harness/a|harness/b", count as one.
function(bnlab_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source)
    if(source IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${source})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    foreach(joined IN LISTS ARGN)
      string(REPLACE "|" ";" small ${joined})
      if(folder IN_LIST small)
        list(GET small 0 folder)
      endif()
    endforeach()
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND files_of_${folder} ${source})
    list(LENGTH files_of_${folder} place)
    math(EXPR group "(${place} - 1) / 12")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# Compiles quickly what no training step waits for. GCC looks for its own garbage from 1 GB on only: most files never
# need as much, and looking takes a tenth of their time.
function(bnlab_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
endfunction()
