"""Plants each violation in a copy of the sources and expects tools/tidy.py to find it, and nothing more."""

import importlib.util
import shutil
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
tidy = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tidy)

HEADER = "// What this header is for.\n#pragma once\n"
TEST = '#include "core/check.h"\n'


class TidyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name) / "copy"
        for part in ("src/core", "tests/core", "tests/tools", "tools"):  # a corner of the house is enough, and quick
            shutil.copytree(ROOT / part, cls.root / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("CMakeLists.txt", "src/kernels/tier.h"):
            (cls.root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, cls.root / part)
        cls.clean = cls.findings()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def findings(cls):
        return set(tidy.findings_of(cls.root))

    def plant(self, files, expected):
        """Writes {path: text} (None: removes the file), expects exactly one new finding that contains `expected`, and takes it back."""
        before = {path: (self.root / path).read_text() if (self.root / path).exists() else None for path in files}
        self.put(files)
        try:
            found = self.findings() - self.clean
        finally:
            self.put(before)
        self.assertEqual(len(found), 1, f"{sorted(found)}; expected one finding: {expected}")
        self.assertIn(expected, found.pop())

    def put(self, files):
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink(missing_ok=True)
            else:
                file.write_text(text)

    def plant_line(self, path, line, expected):
        self.plant({path: (self.root / path).read_text() + line + "\n"}, expected)

    def test_lines(self):
        self.plant_line("src/core/check.cc", "// " + "x" * 140, "143 characters")
        self.plant_line("src/core/check.cc", "// x ", "trailing white space")
        self.plant_line("src/core/check.cc", "\tint x;", "tab")
        self.plant_line("src/core/check.cc", "<<<<<<< HEAD", "conflict marker")
        self.plant_line("src/core/check.cc", "// x\n" * 600, "lines, at most 600")
        self.plant({"src/core/check.cc": (self.root / "src/core/check.cc").read_text() + "// x"}, "no newline")

    def test_banned_words(self):
        source = "src/core/check.cc"
        self.plant_line(source, "// TO" + "DO: later", "issue number")
        self.plant_line(source, "int x = std::rand();", "core/random.h")
        self.plant_line(source, "using namespace std;", "name what is used")
        self.plant_line(source, 'const char* home = std::getenv("HOME");', "only src/cli")
        self.plant_line(source, 'const char* file = "/tmp/x";', "one machine")
        self.plant_line(source, "// see /" + "work/main", "one machine")
        self.plant_line(source, 'void F() { throw Error("x"); }', "thrown by Fail")
        self.plant_line(source, "void F() { assert(true); }", "TSR_CHECK")
        self.plant_line("tests/core/check_test.cc", "void F() { std::this_thread::sleep_for(x); }", "tests wait for conditions")

    def test_intrinsics(self):
        self.plant_line("src/core/check.cc", "#include <immintrin.h>", "intrinsics")
        self.plant_line("src/core/check.cc", "void F() { _mm512_setzero_ps(); }", "intrinsics")
        self.plant_line("src/core/threads.cc", "void F() { _mm_sfence(); }", "intrinsics")

    def test_arrows(self):
        self.plant_line("src/core/check.cc", '#include "kernels/tier.h"', "core may not include kernels")
        self.plant_line("src/core/check.cc", '#include "core/no_such.h"', "there is no core/no_such.h")
        self.plant_line("tests/core/check_test.cc", '#include "kernels/tier.h"', "core may not include kernels")

    def test_headers(self):
        self.plant({"src/core/x.h": "#pragma once\n", "tests/core/x_test.cc": '#include "core/x.h"\n'}, "opens with the paragraph")
        self.plant({"src/core/x.h": "// Words.\n\nint x;\n", "tests/core/x_test.cc": '#include "core/x.h"\n'}, "#pragma once follows")

    def test_mirror(self):
        self.plant({"src/core/x.cc": "int x;\n"}, "has no tests/core/x_test.cc")
        self.plant({"src/kernels/x_tier.cc": "int x;\n"}, "has no tests/kernels/x_test.cc")
        self.plant({"tests/core/x_test.cc": TEST}, "there is no src/core/x")
        self.plant({"bench/core/x_bench.cc": TEST}, "there is no src/core/x")
        self.plant({"tests/reference/x_ref.h": HEADER, "tests/core/check_test.cc": '#include "reference/x_ref.h"\n'}, "there is no src/*/x")

    def test_dead_and_unregistered(self):
        self.plant({"src/core/x.h": HEADER}, "nothing includes this header")
        self.plant({"src/nowhere/x.cc": "int x;\n"}, "no glob of CMake")
        self.plant({"tests/core/x.cc": "int x;\n"}, "no glob of CMake")
        self.plant({"tools/unnamed" + "_tool": "#!/bin/bash\n"}, "nothing names this tool")
        self.plant({"tests/tools/check.py": "X = 1\n"}, "runs *_test.py")
        self.plant({"docs/x.md": "[x](no_such.md)\n"}, "link to no_such.md")
        self.plant({"tests/core/utils.h": HEADER, "tests/core/check_test.cc": '#include "core/utils.h"\n'}, "does not say")

    def test_functions(self):
        body = "  int x;\n" * 70
        self.plant_line("src/core/check.cc", f"void Long(int a) {{\n{body}}}", "a function of 72 lines")
        self.plant_line("src/core/check.cc", f"namespace x {{\nX::X() : a_{{1}}, b_(2) {{\n{body}}}\n}}", "a function of 72 lines")
        self.plant_line("src/core/check.cc", "void Wide(int a, int b, int c, int d, int e, int f, int g) {}", "7 parameters")
        self.plant_line("tests/tools/tidy_test.py", "def long():\n" + "    x = 1\n" * 70, "a function of 71 lines")

    def test_long_classes_and_short_functions_pass(self):
        members = "  int a;\n" * 80
        header = HEADER + f"class X {{\n  void F(int a) {{}}\n{members}}};\n"
        self.put({"src/core/x.h": header, "tests/core/x_test.cc": '#include "core/x.h"\n'})
        try:
            self.assertEqual(self.findings(), self.clean)
        finally:
            self.put({"src/core/x.h": None, "tests/core/x_test.cc": None})


if __name__ == "__main__":
    unittest.main()
