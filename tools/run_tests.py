#!/usr/bin/env python3
"""Builds and runs everything that proves the project; ./test calls it after the set-up. Every googletest case, fuzz target, bench,
end-to-end script and tool check counts as one; the last line is `N passed, N failed` (`, N skipped` when some were). The programs are
found by globs, as CMake finds them, so nothing is listed twice.

An end-to-end script (tests/end_to_end/*.sh, *.py) gets the tessera binary as its argument, runs in the repository root, and passes with
exit code 0; 77 means skipped, its last line is the reason. STEM_slow is left out by --fast, STEM_long runs with --long only."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
FUZZ_SECONDS = 20
SKIPPED = 77  # exit code of a script that could not run here, as automake and others have it
TSAN_MODULES = ("core", "plan", "engine")
# The other cases of engine_test replay the same plans hundreds of times: minutes under tsan, and no thread does anything else in them.
TSAN_ENGINE_CASES = "EngineTest.*:StepRunnerTest.*:*WorkerCount/1:*SevenSequencesTogether/1"


class Outcome:
    """What one program proved: counts, the reasons of its skips, and what to show when it failed."""

    def __init__(self, passed=0, failed=0, skipped=0, reasons=(), detail=""):
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.reasons, self.detail = list(reasons), detail


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, name, outcome, seconds):
        self.passed += outcome.passed
        self.failed += outcome.failed
        self.skipped += outcome.skipped
        counts = [f"{outcome.passed} passed"] if outcome.passed else []
        counts += [f"{outcome.failed} FAILED"] if outcome.failed else []
        counts += [f"{outcome.skipped} skipped"] if outcome.skipped else []
        print(f"{name}: {', '.join(counts) or 'no test'} ({seconds:.1f} s)", flush=True)
        for reason in outcome.reasons:
            print(f"    skipped: {reason}", flush=True)
        if outcome.failed:
            print("\n".join("    " + line for line in outcome.detail.splitlines()), flush=True)

    def last_line(self):
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def run_program(name, command, limit_s, env=None):
    """Runs a command in the root with a time limit; returns (exit code, output). The output is kept under build/test-logs."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (re.sub(r"[^\w.-]+", "_", name) + ".log")
    with open(log, "w+", errors="replace") as output:
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, env={**os.environ, **(env or {})}, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # What the program started and left behind ends with it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        text = output.read()
    if code is None:
        text += f"\nended after its limit of {limit_s} s\n"
    elif code < 0:
        text += f"\nended by {signal.Signals(-code).name}\n"
    return code, text


def run_script(name, command, limit_s=600):
    """A program whose exit code decides."""
    code, text = run_program(name, command, limit_s)
    if code == 0:
        return Outcome(passed=1)
    if code == SKIPPED:
        return Outcome(skipped=1, reasons=[f"{name}: {(text.strip() or 'no reason given').splitlines()[-1]}"])
    return Outcome(failed=1, detail=last_lines(text, 60))


def last_lines(text, count):
    return "\n".join(text.rstrip().splitlines()[-count:])


def failed_segments(text):
    """The output of googletest cases that failed or never ended, or the tail when no case is to blame."""
    segments = re.findall(r"^\[ RUN      \](?:(?!^\[       OK|^\[  SKIPPED|^\[ RUN).)*?(?:^\[  FAILED  \][^\n]*|\Z)", text, re.M | re.S)
    return last_lines("\n".join(segments) or text, 120)


def run_unit_test(name, binary, limit_s, env):
    xml = LOGS / (re.sub(r"[^\w.-]+", "_", name) + ".xml")
    xml.unlink(missing_ok=True)
    code, text = run_program(name, [binary, f"--gtest_output=xml:{xml}"], limit_s, env)
    if xml.exists():
        cases = list(ElementTree.parse(xml).iter("testcase"))
        skips = [(case, case.find("skipped")) for case in cases if case.find("skipped") is not None]
        failed = sum(1 for case in cases if case.find("failure") is not None)
        passed = sum(1 for case in cases if case.get("result") == "completed") - failed
        reasons = [f"{case.get('classname')}.{case.get('name')}: {last_lines(tag.get('message') or 'no reason', 1)}" for case, tag in skips]
        if code != 0 and failed == 0:
            failed = 1  # a sanitizer's report at exit, say
        return Outcome(passed, failed, len(skips), reasons, failed_segments(text) if failed else "")
    # It died before it could write its report: what its output says, and one failure for the case it died in.
    ended = {word: len(re.findall(rf"^\[ *{word} *\] \S+ \(", text, re.M)) for word in ("OK", "FAILED", "SKIPPED")}
    return Outcome(ended["OK"], ended["FAILED"] + 1, ended["SKIPPED"], detail=failed_segments(text))


def run_fuzzer(name, binary):
    stem = binary.name
    found = ROOT / "build" / "fuzz" / stem
    found.mkdir(parents=True, exist_ok=True)
    seeds = ROOT / "tests" / "fuzz" / "corpus" / stem
    # What it finds goes to the first folder; the committed seeds are only read.
    command = [binary, f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=512",
               "-print_final_stats=1", f"-artifact_prefix={found}/", found, *([seeds] if seeds.is_dir() else [])]
    code, text = run_program(name, command, FUZZ_SECONDS + 120)
    return Outcome(passed=1) if code == 0 else Outcome(failed=1, detail=last_lines(text, 60))


class Suite:
    def __init__(self, report, fast, long):
        self.report, self.fast, self.long = report, fast, long

    def case(self, name, function, *arguments):
        start = time.monotonic()
        outcome = function(name, *arguments)
        self.report.add(name, outcome, time.monotonic() - start)
        return outcome

    def build(self, preset, *arguments):
        """Builds a preset; a build that works is no test and is not counted."""
        start = time.monotonic()
        process = subprocess.run([ROOT / "tools" / "build", preset, *arguments], text=True, errors="replace", check=False,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        seconds = time.monotonic() - start
        if process.returncode != 0:
            self.report.add(f"build {preset}", Outcome(failed=1, detail=last_lines(process.stdout, 200)), seconds)
            return False
        print(f"build {preset} ({seconds:.1f} s)", flush=True)
        return True

    def tools(self):
        self.case("tidy", run_script, [sys.executable, "tools/tidy.py"], 60)
        for script in sorted((ROOT / "tests" / "tools").glob("*_test.py")):
            self.case(f"tools {script.stem}", run_script, [sys.executable, script])

    def tokenizer_file(self):
        """The real V4 tokenizer, for the parity tests: fetched once; without a network those tests say that they skip."""
        script = ROOT / "tools" / "fetch_v4_tokenizer"
        if script.exists():
            code, text = run_program("fetch_v4_tokenizer", [script], 300)
            if code != 0:
                self.report.add("fetch_v4_tokenizer", Outcome(skipped=1, reasons=[last_lines(text, 1)]), 0)

    def unit_tests(self, preset, modules=None, limit_s=900, env=None):
        for binary in sorted((ROOT / "build" / preset).glob("*_test")):
            if modules is None or binary.name.removesuffix("_test") in modules:
                self.case(f"{preset} {binary.name}", run_unit_test, binary, limit_s, env)

    def benches(self):
        for binary in sorted((ROOT / "build" / "release").glob("*_bench")):
            self.case(f"smoke {binary.name}", run_script, [binary, "--smoke"], 120)

    def end_to_end(self):
        binary = ROOT / "build" / "release" / "tessera"
        scripts = [path for path in (ROOT / "tests" / "end_to_end").glob("*") if path.suffix in (".sh", ".py")]
        for script in sorted(scripts):
            if (script.stem.endswith("_slow") and self.fast) or (script.stem.endswith("_long") and not self.long):
                continue
            interpreter = sys.executable if script.suffix == ".py" else "bash"
            self.case(f"end to end {script.stem}", run_script, [interpreter, script, binary], 1200)

    def fuzzers(self):
        """Two at a time: they are single-threaded, and the suite is sized for two cores."""
        binaries = sorted((ROOT / "build" / "debug-asan-ubsan").glob("*_fuzz"))
        with ThreadPoolExecutor(2) as executor:
            for name, outcome in executor.map(lambda binary: (f"fuzz {binary.name}", run_fuzzer(f"fuzz {binary.name}", binary)), binaries):
                self.report.add(name, outcome, FUZZ_SECONDS)

    def run(self):
        self.tools()
        self.tokenizer_file()
        if not self.build("release", "-DTESSERA_TESTS=ON", "-DTESSERA_BENCHES=ON"):
            return
        self.unit_tests("release")
        self.benches()
        self.end_to_end()
        if self.fast:
            return
        if self.build("debug-asan-ubsan"):
            self.unit_tests("debug-asan-ubsan", limit_s=1200)
            self.fuzzers()
        if self.build("tsan", *(f"{module}_test" for module in TSAN_MODULES if any((ROOT / "tests" / module).glob("*_test.cc")))):
            self.unit_tests("tsan", ("core", "plan"), limit_s=1200, env={"TSAN_OPTIONS": "halt_on_error=1"})
            self.unit_tests("tsan", ("engine",), limit_s=1200, env={"TSAN_OPTIONS": "halt_on_error=1", "GTEST_FILTER": TSAN_ENGINE_CASES})


def main():
    parser = argparse.ArgumentParser(prog="./test", description="Builds and runs everything that proves the project.")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument("--fast", action="store_true", help="leave out what needs minutes: sanitizers, fuzzing, slow end-to-end scripts")
    speed.add_argument("--long", action="store_true", help="add the largest cases")
    arguments = parser.parse_args()
    report = Report()
    start = time.monotonic()
    Suite(report, arguments.fast, arguments.long).run()
    print(f"took {time.monotonic() - start:.0f} s")
    print(report.last_line(), flush=True)
    return 1 if report.failed or not report.passed else 0


if __name__ == "__main__":
    sys.exit(main())
