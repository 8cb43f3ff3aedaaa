#!/usr/bin/env bash
# Every equality of bits of tests/engine/step_runner_test.cc on random checkpoints of the released widths: more of the cases, longer texts.
set -u
tests=$(dirname "$1")/engine_test
if [ ! -x "$tests" ]; then
  echo "$tests is not built (TESSERA_TESTS)"
  exit 77
fi
exec "$tests" --gtest_also_run_disabled_tests --gtest_filter='DISABLED_WidthsInFull/*'
