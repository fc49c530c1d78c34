# The published clusters of harness/prediction, in a header that clusters.cpp is compiled with.
set(clusters_file ${PROJECT_SOURCE_DIR}/harness/prediction/clusters.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${clusters_file})
file(READ ${clusters_file} clusters)
set(clusters_header ${PROJECT_BINARY_DIR}/prediction/clusters_json.hpp)
file(CONFIGURE OUTPUT ${clusters_header} @ONLY CONTENT [[
#pragma once
inline constexpr const char* kPublishedClusters = R"clusters(@clusters@)clusters";
]])
set_source_files_properties(harness/prediction/clusters.cpp PROPERTIES
                            COMPILE_OPTIONS "-include;${clusters_header}")
