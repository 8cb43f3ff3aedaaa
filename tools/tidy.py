#!/usr/bin/env python3
"""Keeps the house as docs/architecture.md and CONTRIBUTING.md describe it: arrows between modules, the mirror of src and tests, lengths,
dead and unregistered files, banned words. Prints one line per finding and exits 1; prints nothing when all is well. The arrows are read
from the tessera_module(...) lines of CMakeLists.txt, so they exist once. tests/tools/tidy_test.py plants each violation.
`tools/tidy.py --fix` first lets clang-format break the lines that are too long."""

import ast
import re
import subprocess
import sys
from pathlib import Path

LINE_MAX = 140
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6

FOLDERS = ("src", "tests", "bench", "tools", "cmake", "docs", "python", ".ci")
DATA = ("tests/golden/", "tests/fuzz/corpus/", "tests/reference/python/")  # given files: expected values, seeds, the reference as it came
CODE = (".cc", ".h", ".py", ".sh", ".cmake", ".txt", "")  # "" is a bash command such as run or tools/setup

# Exceptions, each with its reason. A path here that no longer exists is itself a finding.
LONG_FUNCTIONS = {
    "src/model/deepseek_v4.cc": "the forward pass reads top to bottom like the paper",
    "src/model/deepseek_v41.cc": "the forward pass reads top to bottom like the paper",
}
PROVED_BY = {  # parts of a thing that has one door: source, and the test of that door
    "src/tokenizer/added_tokens.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/bpe.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/byte_alphabet.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/pre_tokenizer.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/tokenizer_file.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/utf8.cc": "tests/tokenizer/tokenizer_test.cc",
    "src/tokenizer/chat_format.cc": "tests/tokenizer/chat_render_test.cc",
    "src/tokenizer/chat_request.cc": "tests/tokenizer/chat_render_test.cc",
    # The forward pass is compared with the references layer by layer, choice by choice.
    "src/model/attention_phases.cc": "tests/engine/evaluate_test.cc",
    "src/model/deepseek_v4.cc": "tests/engine/evaluate_test.cc",
    "src/model/deepseek_v41.cc": "tests/engine/evaluate_test.cc",
    "src/model/forward_builder.cc": "tests/engine/evaluate_test.cc",
    "src/model/moe_phase.cc": "tests/engine/evaluate_test.cc",
    "src/model/record.cc": "tests/engine/evaluate_test.cc",
}
NO_SOURCE = {  # tests and benches that no single source stands for, and why
    "bench/kernels/small_ops_bench.cc": "all the small ops of a step in one table",
    "tests/engine/plan_contract_test.cc": "the contract of docs/plans.md, which plan, step runner and caches keep together",
}

# (pattern, what to do instead, where it applies, where it is allowed)
BANNED = [
    (r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", "a TODO carries an issue number, TODO(#12), or does not exist", "", ()),
    (r"\bstd::rand\b|\bsrand\s*\(|\brandom_device\b", "use core/random.h", "", ()),
    (r"\busing namespace std\b", "name what is used", "", ()),
    (r"\busing namespace (?!std\b)", "name what is used", "src/", ()),
    (r"\b(secure_)?getenv\s*\(|\bos\.environ\b", "only src/cli reads the environment", "", ("src/cli/", "tests/", "tools/")),
    (r"\bsleep_(for|until)\b|\bu?sleep\s*\(|\bnanosleep\b|\btime\.sleep\b|^\s*sleep [\d.]",
     "tests wait for conditions, not for time", "tests/", ()),
    (r"(?<![\w.])/(work|root|tmp)/", "no path of one machine; tests ask the system for a temporary directory", "", ()),
    (r"(?<!static_)\bassert\s*\(", "use TSR_CHECK", "src/", ()),
    (r"\bthrow\s+(?!;|RequestError\(|std::bad_alloc)", "operating errors are thrown by Fail (core/check.h)", "src/",
     ("src/core/check.h", "src/cli/")),
    (r"\bstd::format\b|#include <format>", "use fmt (gcc 12 has no std::format)", "", ()),
    (r"#include <[a-z0-9]*intrin\.h>", "intrinsics live in src/kernels", "", ("src/kernels/", "src/core/threads.cc")),
    (r"\b_mm(?!_pause)\w*\s*\(|\b__m(128|256|512)\w*\b", "intrinsics live in src/kernels", "", ("src/kernels/",)),
    (r"#include \"[^\"]*\.cc\"", "a .cc is compiled, not included", "", ()),
    (r"#\s*pragma\s+omp\b|\bomp_get_", "threads are core/threads.h", "", ()),
]
VAGUE_NAMES = re.compile(r"(^|[/_])(utils?|common|misc|helpers?|legacy|experimental|archive|third_party|v2)([/._]|$)")
CONFLICT = re.compile(r"^(<<<<<<< |>>>>>>> |=======$)")


class Tree:
    """The text files of a checkout, and the findings about them."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        paths = [path for path in root.iterdir() if path.is_file()]
        paths += [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
        names = sorted(path.relative_to(root).as_posix() for path in paths if "__pycache__" not in path.parts)
        self.names = [name for name in names if not name.startswith(DATA)]
        self.text = {name: self.read(name) for name in self.names}
        self.modules = {}
        for line in self.text.get("CMakeLists.txt", "").splitlines():
            if match := re.match(r"tessera_module\(([\w ]+)\)", line):
                name, *arrows = match[1].split()
                self.modules[name] = set(arrows)

    def read(self, name):
        try:
            return (self.root / name).read_text()
        except UnicodeDecodeError:
            return ""  # not text

    def say(self, name, line, message):
        self.findings.append(f"{name}:{line}: {message}" if line else f"{name}: {message}")

    def code(self, *prefixes):
        return [name for name in self.names if name.startswith(prefixes) and name.endswith((".cc", ".h"))]


def check_lines(tree):
    for name, text in tree.text.items():
        is_code = Path(name).suffix in CODE and name != "LICENSE"
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if is_code and len(line) > LINE_MAX:
                tree.say(name, number, f"{len(line)} characters, at most {LINE_MAX}")
            if CONFLICT.match(line):
                tree.say(name, number, "conflict marker")
            if line != line.rstrip():
                tree.say(name, number, "trailing white space")
            if "\t" in line and not name.endswith(".md"):
                tree.say(name, number, "tab")
        if text and not text.endswith("\n"):
            tree.say(name, len(lines), "no newline at the end")
        if is_code and len(lines) > FILE_LINES_MAX + 1:
            tree.say(name, 0, f"{len(lines) - 1} lines, at most {FILE_LINES_MAX}")
        if VAGUE_NAMES.search(name):
            tree.say(name, 0, "the name does not say what is in it")


def check_banned(tree):
    for pattern, instead, prefix, allowed in BANNED:
        expression = re.compile(pattern)
        for name, text in tree.text.items():
            if not name.startswith(prefix) or name.startswith(allowed) or name in ("tools/tidy.py", "tests/tools/tidy_test.py"):
                continue
            for number, line in enumerate(text.split("\n"), 1):
                if match := expression.search(line):
                    tree.say(name, number, f"'{match[0].strip()}': {instead}")


def check_headers(tree):
    for name in tree.code("src/", "tests/", "bench/"):
        if not name.endswith(".h"):
            continue
        lines = tree.text[name].split("\n")
        after = next((line for line in lines if not line.startswith("//")), "")
        if not lines[0].startswith("// "):
            tree.say(name, 1, "a header opens with the paragraph that says what it is for")
        elif after != "#pragma once":
            tree.say(name, 1, "#pragma once follows the opening paragraph")


def includes(text):
    for number, line in enumerate(text.split("\n"), 1):
        if match := re.match(r'#include "([^"]+)"', line):
            yield number, match[1]


def reachable(modules, module):
    found, queue = set(), [module]
    while queue:
        found.add(queue[-1])
        queue.extend(modules.get(queue.pop(), set()) - found)
    return found


def check_arrows(tree):
    layers = set(tree.modules)
    for name in tree.code("src/", "tests/", "bench/"):
        top, module = name.split("/")[:2]
        if top == "src" and module in tree.modules:
            allowed = tree.modules[module] | {module}
        elif module in tree.modules:  # its tests and benches may name whatever their program links
            allowed = reachable(tree.modules, module)
        else:
            allowed = layers | {module}
        for number, path in includes(tree.text[name]):
            target = path.split("/")[0]
            if target in layers | {"cli"} and target not in allowed:
                tree.say(name, number, f"{module} may not include {target} (arrows: CMakeLists.txt)")
            if not any(f"{base}/{path}" in tree.text for base in ("src", "tests", "bench")):
                tree.say(name, number, f"there is no {path} below src, tests or bench")


def check_mirror(tree):
    for name in tree.code("src/"):
        _, module, file = name.split("/", 2)
        if module not in tree.modules or not name.endswith(".cc"):
            continue
        # A tier file belongs to its op: matmul_bf16_tier.cc to matmul_bf16 or to matmul.
        words = file.removesuffix(".cc").split("_")
        stems = ["_".join(words)] if words[1:][-1:] != ["tier"] else ["_".join(words[:count]) for count in range(len(words) - 1, 0, -1)]
        if not any(f"tests/{module}/{stem}_test.cc" in tree.text for stem in stems) and name not in PROVED_BY:
            tree.say(name, 0, f"has no tests/{module}/{stems[0]}_test.cc")
    sources = {tuple(name.removeprefix("src/").rsplit(".", 1)[0].split("/")) for name in tree.code("src/")}
    for name in tree.code("tests/", "bench/"):
        top, module, *rest = name.split("/")
        stem, _, kind = Path(name).stem.rpartition("_")
        if kind in ("test", "bench") and module in tree.modules and (module, stem) not in sources and name not in NO_SOURCE:
            tree.say(name, 0, f"there is no src/{module}/{stem}.h or .cc")
        if module == "reference" and kind == "ref" and not any(source[1] == stem for source in sources if len(source) == 2):
            tree.say(name, 0, f"there is no src/*/{stem}.h or .cc")
    for name in [*LONG_FUNCTIONS, *PROVED_BY, *PROVED_BY.values(), *NO_SOURCE]:
        if name not in tree.text:
            tree.say("tools/tidy.py", 0, f"an exception names {name}, which does not exist")


def check_registered(tree):
    """Every .cc is in a glob of CMake, every header is included by someone, every tool and script is named or run by someone."""
    modules = "|".join([*tree.modules, "cli"])
    registered = re.compile(rf"src/({modules})/\w+\.cc|(tests|bench)/({modules})/\w+_(test|tier|bench)\.cc|tests/fuzz/\w+_fuzz\.cc")
    included = {path for name in tree.code("src/", "tests/", "bench/", "python/") for _, path in includes(tree.text[name])}
    for name in tree.code("src/", "tests/", "bench/"):
        if name.endswith(".cc") and not registered.fullmatch(name):
            tree.say(name, 0, "no glob of CMake builds this file")
        if name.endswith(".h") and name.split("/", 1)[1] not in included:
            tree.say(name, 0, "nothing includes this header")
    for name in tree.names:
        if name.startswith("tools/") and not any(Path(name).name in text for other, text in tree.text.items() if other != name):
            tree.say(name, 0, "nothing names this tool")
        if name.startswith("tests/end_to_end/") and not name.endswith((".sh", ".py")) and not name.endswith((".json", ".txt")):
            tree.say(name, 0, "the test runner runs .sh and .py")
        if name.startswith("tests/tools/") and not name.endswith("_test.py"):
            tree.say(name, 0, "the test runner runs *_test.py")
        if name.endswith(".md"):
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", tree.text[name]):
                if not (tree.root / Path(name).parent / target).exists():
                    tree.say(name, 0, f"link to {target}, which does not exist")


def strip_literals(text):
    """Comments, strings and character literals blanked out, line breaks kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ ]*#[^\n]*(?:\\\n[^\n]*)*'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S | re.M)


def functions(text):
    """(first line, number of lines, signature) of each function with a body: a best effort by matching braces outside classes."""
    container, function, other = "container", "function", "other"
    stack, statement, start = [], "", 1
    line = 1
    for character in strip_literals(text):
        if character == "\n":
            line += 1
        is_open = all(kind == container for kind, _, _ in stack)  # where a function may begin
        if character == "{":
            head = statement.strip()
            if is_open and re.match(r"(.*\s)?(namespace|class|struct|enum|union|extern)\b[^()]*$", head, re.S):
                kind = container
            elif is_open and "(" in head and re.search(r"(\)|\b(const|noexcept|override|final)|->\s*[\w:<>,&* ]+|\})$", head):
                kind = function
            else:
                kind = other
            stack.append((kind, start, head))
            statement = "" if kind == container else statement + character
        elif character == "}":
            kind, first, head = stack.pop() if stack else (other, line, "")
            if kind == function:
                yield first, line - first + 1, head
            statement = statement + character if kind == other else ""
        elif character == ";" and is_open:
            statement = ""
        elif statement or not character.isspace():
            if not statement:
                start = line
            statement += character


def num_parameters(signature):
    """Commas at the top level of the first parenthesis that follows a name."""
    match = re.search(r"[\w\]>]\s*\(", signature)
    if match is None or re.match(r"\s*(TEST|TEST_P|TEST_F|BENCHMARK)\w*\s*\(", signature):
        return 0
    depth, commas, inside = 0, 0, ""
    for character in signature[match.end() - 1:]:
        depth += character in "(<[{"
        depth -= character in ")>]}"
        commas += character == "," and depth == 1
        inside += character
        if depth == 0:
            break
    return commas + 1 if inside.strip("() \n") else 0


def check_functions(tree):
    for name in tree.code("src/", "tests/", "bench/"):
        for line, length, signature in functions(tree.text[name]):
            if length > FUNCTION_LINES_MAX and name not in LONG_FUNCTIONS:
                tree.say(name, line, f"a function of {length} lines, at most {FUNCTION_LINES_MAX}")
            # Bodies below a checked entry take raw sizes.
            if name.startswith("src/") and not name.endswith(("_tier.cc", "-inl.h")) and num_parameters(signature) > PARAMETERS_MAX:
                tree.say(name, line, f"{num_parameters(signature)} parameters, at most {PARAMETERS_MAX}: use an options struct")
    for name in tree.names:
        if name.endswith(".py"):
            for node in ast.walk(ast.parse(tree.text[name])):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX:
                    tree.say(name, node.lineno, f"a function of {node.end_lineno - node.lineno + 1} lines, at most {FUNCTION_LINES_MAX}")


def findings_of(root):
    tree = Tree(root)
    for check in (check_lines, check_banned, check_headers, check_arrows, check_mirror, check_registered, check_functions):
        check(tree)
    return tree.findings


def break_long_lines(root):
    """Lets clang-format break each C++ line that is too long, from the last to the first of a file; it touches no other statement."""
    for finding in reversed(findings_of(root)):
        if match := re.match(r"(.*\.(?:cc|h)):(\d+): \d+ characters", finding):
            subprocess.run(["clang-format", "-i", f"--lines={match[2]}:{match[2]}", root / match[1]], check=True)


def main():
    root = Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--fix"]:
        break_long_lines(root)
    findings = findings_of(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
