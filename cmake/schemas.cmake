# The schemas of results/, in a header that schema.cpp is compiled with.
set(schemas ${PROJECT_SOURCE_DIR}/results)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${schemas}/record.schema.json ${schemas}/probe.schema.json)
file(READ ${schemas}/record.schema.json record_schema)
file(READ ${schemas}/probe.schema.json probe_schema)
set(schemas_header ${PROJECT_BINARY_DIR}/store/schemas_json.hpp)
file(CONFIGURE OUTPUT ${schemas_header} @ONLY CONTENT [[
#pragma once
inline constexpr const char* kRecordSchemaText = R"schema(@record_schema@)schema";
inline constexpr const char* kProbeSchemaText = R"schema(@probe_schema@)schema";
]])
set_source_files_properties(harness/store/schema.cpp PROPERTIES COMPILE_OPTIONS "-include;${schemas_header}")
