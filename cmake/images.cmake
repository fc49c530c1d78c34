# JPEG and PNG decoding for the tasks that read photographs; optional.
find_package(JPEG)
find_package(PNG)
if(JPEG_FOUND AND PNG_FOUND)
  target_compile_definitions(harness PUBLIC BNLAB_WITH_IMAGES)
  target_link_libraries(harness PUBLIC JPEG::JPEG PNG::PNG)
else()
  message(STATUS "libjpeg or libpng not found: tasks that read photographs will refuse to run")
endif()
