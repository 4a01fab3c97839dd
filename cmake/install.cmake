# What `cmake --install` puts where, and the two ways to find it again: pkg-config (heft.pc) and find_package(heft).
include(CMakePackageConfigHelpers)

install(TARGETS heft_shared heft_static EXPORT heft
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${HEFT_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heft)

# Paths in heft.pc are relative to the file itself, so an installed tree can be moved.
file(RELATIVE_PATH heft_pc_prefix
  ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(heft.pc.in heft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(heft_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heft)
install(EXPORT heft NAMESPACE heft:: FILE heftTargets.cmake DESTINATION ${heft_cmake_dir})
configure_package_config_file(cmake/heftConfig.cmake.in heftConfig.cmake INSTALL_DESTINATION ${heft_cmake_dir})
write_basic_package_version_file(heftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heftConfig.cmake ${PROJECT_BINARY_DIR}/heftConfigVersion.cmake
  DESTINATION ${heft_cmake_dir})

if(TARGET heft_cli)
  install(TARGETS heft_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(GLOB heft_man CONFIGURE_DEPENDS docs/man/*.1)
  if(heft_man)
    install(FILES ${heft_man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/completions)
    install(FILES completions/heft.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heft)
    install(FILES completions/_heft DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES completions/heft.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()
