#!/usr/bin/env python3
"""Prints the README's table of measured numbers (markdown) from the release build of this checkout. Rates and the limits they are compared
with are taken in one run each; a rate is the median of several. Build first: ./test --fast (it builds the benches too).

  tools/measure.py           decode and prefill of the embedded model, and the matrix kernels against the memory's stream rate
  tools/measure.py --cold    also the time of a first ./run in a fresh copy of HEAD, with the packages there and no compiler cache
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "build" / "release"
REPEATS = 5
DECODE_TOKENS = 256
PREFILL_BYTES = 3000  # of tests/golden/tiny/valid.txt: about 1,000 tokens of the embedded model


def output_of(*command):
    process = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if process.returncode != 0:
        sys.exit(f"measure.py: {' '.join(str(part) for part in command)} ended with {process.returncode}")
    return process.stdout


def median_rate(field, *arguments):
    """Median over runs of one of the rates that `tessera run --json` reports."""
    rates = [json.loads(output_of(RELEASE / "tessera", "run", "--json", *arguments))["timing"][field] for _ in range(REPEATS)]
    return statistics.median(rates), min(rates), max(rates)


def model_rows():
    rate, low, high = median_rate("decode_tokens_per_s", "Once upon a time", "-n", DECODE_TOKENS, "--ignore-eos", "--temperature", "0")
    yield "decode, `models/tiny`, batch 1", f"{rate:,.0f} tokens/s ({low:,.0f} – {high:,.0f})"
    with tempfile.NamedTemporaryFile("wb", suffix=".txt") as prompt:
        text = (ROOT / "tests/golden/tiny/valid.txt").read_bytes()[:PREFILL_BYTES].decode("utf-8", "ignore")
        prompt.write(text.encode())
        prompt.flush()
        rate, low, high = median_rate("prefill_tokens_per_s", "--prompt-file", prompt.name, "-n", 1)
    yield f"prefill, `models/tiny`, {PREFILL_BYTES:,} characters", f"{rate:,.0f} tokens/s ({low:,.0f} – {high:,.0f})"


def kernel_rows():
    lines = [json.loads(line) for line in output_of(RELEASE / "matmul_bench", "--json").splitlines() if line.startswith("{")]
    for line in lines:
        workers = "1 worker" if line["workers"] == 1 else f"{line['workers']} workers"
        stream = line["stream_gb_per_s"]
        yield f"stream read, {workers}", f"{stream:.1f} GB/s"
        for name, label in (("fp4", "FP4 (e2m1)"), ("fp8", "FP8 (e4m3)")):
            rate = line[f"{name}_gemv_gb_per_s"]
            yield f"{label} matrix times vector, {workers}", f"{rate:.1f} GB/s = {100 * rate / stream:.0f} % of stream"
        peak = max(line["bf16_dot_gflop_per_s"], line["fma_gflop_per_s"])  # the same bits either way; the faster one is used
        rate = line["fp4_m512_gflop_per_s"]
        yield f"FP4 matrix times 512 rows, {workers}", f"{rate:.0f} GFLOP/s = {100 * rate / peak:.0f} % of the dot peak"


def cold_rows():
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tessera"
        subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
        start = time.monotonic()
        subprocess.run([copy / "run", "Once upon a time", "-n", "16"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       env={**os.environ, "CCACHE_DISABLE": "1"})
        cold = time.monotonic() - start
        start = time.monotonic()
        subprocess.run([copy / "run", "Once upon a time", "-n", "16"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        warm = time.monotonic() - start
    yield "first `./run`, packages installed, no compiler cache", f"{cold:.0f} s"
    yield "second `./run`, 16 tokens", f"{warm:.2f} s"


def cpu_name():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else "unknown CPU"


def main():
    parser = argparse.ArgumentParser(prog="tools/measure.py", description="Prints the README's table of measured numbers.")
    parser.add_argument("--cold", action="store_true", help="also time a first ./run in a fresh copy of HEAD")
    arguments = parser.parse_args()
    for program in ("tessera", "matmul_bench"):
        if not (RELEASE / program).exists():
            sys.exit(f"measure.py: {RELEASE / program} is missing; build it with ./test --fast")
    rows = [*model_rows(), *kernel_rows(), *(cold_rows() if arguments.cold else ())]
    print(f"| {cpu_name()}, {os.cpu_count()} cores | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
