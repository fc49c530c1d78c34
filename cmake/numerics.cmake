# The panel of harness/numerics, in a header that panel.cpp is compiled with.
set(numerics ${PROJECT_SOURCE_DIR}/harness/numerics)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${numerics}/entries.json ${numerics}/values.json)
file(READ ${numerics}/entries.json entries)
file(READ ${numerics}/values.json values)
set(panel_header ${PROJECT_BINARY_DIR}/numerics/panel_json.hpp)
file(CONFIGURE OUTPUT ${panel_header} @ONLY CONTENT [[
#pragma once
#include "@revision_header@"
inline constexpr const char* kPanelEntries = R"panel(@entries@)panel";
inline constexpr const char* kPanelValues = R"panel(@values@)panel";
]])
set_source_files_properties(harness/numerics/panel.cpp PROPERTIES
                            COMPILE_OPTIONS "-include;${panel_header}")
