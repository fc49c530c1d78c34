# Texts that sources include as <texts/NAME.hpp>: files of the project as CONSTANT, and where nuclei.cpp looks for the
# images that come with the program, in the project and beside an installed program.
include(GNUInstallDirs)
set(bnlab_texts ${PROJECT_BINARY_DIR}/generated)
function(bnlab_text name constant file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  file(CONFIGURE OUTPUT ${bnlab_texts}/texts/${name}.hpp @ONLY CONTENT [[
#pragma once
inline constexpr const char* @constant@ = R"text(@text@)text";
]])
endfunction()
bnlab_text(other_names kOtherNames harness/components/other_names.json)
bnlab_text(clusters kPublishedClusters harness/prediction/clusters.json)
bnlab_text(panel_entries kPanelEntries harness/numerics/entries.json)
bnlab_text(panel_values kPanelValues harness/numerics/values.json)
bnlab_text(measures kMeasures scripts/python/bnlab/measures.json)
bnlab_text(live_page kLivePage harness/report/live.html)
bnlab_text(report_page kReportPage harness/report/report.html)
bnlab_text(record_schema kRecordSchemaText results/record.schema.json)
bnlab_text(probe_schema kProbeSchemaText results/probe.schema.json)
file(CONFIGURE OUTPUT ${bnlab_texts}/texts/places.hpp @ONLY CONTENT [[
#pragma once
inline constexpr const char* kProject = "@PROJECT_SOURCE_DIR@";
inline constexpr const char* kInstalledData = "@CMAKE_INSTALL_DATADIR@/bnlab";
]])
