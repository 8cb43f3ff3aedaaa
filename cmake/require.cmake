# tessera_require(NAME PACKAGE ...): find_package(NAME ...) that ends with the name of the usual package when there is none.
macro(tessera_require NAME PACKAGE)
  find_package(${NAME} QUIET ${ARGN})
  if(NOT ${NAME}_FOUND)
    message(FATAL_ERROR "${NAME} was not found. Its usual package: ${PACKAGE} (Debian, Ubuntu).")
  endif()
endmacro()

# The same for a library known to pkg-config only.
macro(tessera_require_pkg NAME MODULE PACKAGE)
  pkg_check_modules(${NAME} QUIET IMPORTED_TARGET ${MODULE})
  if(NOT ${NAME}_FOUND)
    message(FATAL_ERROR "${MODULE} was not found. Its usual package: ${PACKAGE} (Debian, Ubuntu).")
  endif()
endmacro()
