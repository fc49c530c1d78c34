# `cmake --install build/release --prefix DIR`: the programs, bnlab-more where it was built, the images that come with them, the
# manual page and completions. Programs are copied as they were built: they go on using the LibTorch that they were linked with,
# which must stay where it is.
install(PROGRAMS $<TARGET_FILE:bnlab> TYPE BIN)
install(PROGRAMS $<TARGET_FILE:bnlab-more> TYPE BIN OPTIONAL)
install(DIRECTORY experiments/data/nuclei DESTINATION ${CMAKE_INSTALL_DATADIR}/bnlab)

# What the program writes about itself, in a folder that is then copied.
set(about ${PROJECT_BINARY_DIR}/about)
install(CODE "
function(bnlab_write file)
  execute_process(COMMAND \"$<TARGET_FILE:bnlab>\" \${ARGN} OUTPUT_FILE \"${about}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(MAKE_DIRECTORY \"${about}\")
bnlab_write(bnlab.1 man)
bnlab_write(bnlab completion bash)
bnlab_write(_bnlab completion zsh)
bnlab_write(bnlab.fish completion fish)
")
install(FILES ${about}/bnlab.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${about}/bnlab DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${about}/_bnlab DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${about}/bnlab.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
