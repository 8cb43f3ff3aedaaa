#!/usr/bin/env python3
"""The limits that `tessera bench --stream` reports are those that independent programs find beside it (bench/prototypes): stream and dot
rates within 5 %. The two run in turns, because a machine that others share changes from second to second; of each, the best pass counts,
and of the turns the median of the ratios. A disagreement is looked at again a few times before it is one; when it stays and the load
average says that others use the cores, nothing can be said and the test is skipped."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TESSERA = Path(sys.argv[1])
REFERENCE = TESSERA.parent / "machine_rate_bench"
TOLERANCE = 0.05
TURNS = 5
ATTEMPTS = 4
RATES = ("stream_gb_per_s", "fma_gflop_per_s", "bf16_dot_gflop_per_s")
LOAD_OF_OTHERS = 1
SKIPPED = 77


def output_of(*command):
    process = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if process.returncode != 0:
        sys.exit(f"bench_stream_slow.py: {command} ended with {process.returncode}")
    return process.stdout


def ours():
    return json.loads(output_of(TESSERA, "bench", "--stream", "--json"))["by_workers"]


def reference():
    return [json.loads(line) for line in output_of(REFERENCE, "--reference").splitlines()]


def attempt():
    """Ratios by (workers, rate): medians over the turns."""
    ratios = {}
    for turn in range(TURNS):
        pair = (ours(), reference()) if turn % 2 == 0 else (reference(), ours())[::-1]
        for mine, theirs in zip(*pair):
            for rate in RATES:
                if theirs[rate + "_max"] > 0 and mine[rate + "_max"] > 0:
                    ratios.setdefault((mine["workers"], rate), []).append(mine[rate + "_max"] / theirs[rate + "_max"])
                    print(f"  turn {turn}, {mine['workers']} worker(s), {rate}: {mine[rate + '_max']:.2f} / {theirs[rate + '_max']:.2f}")
    return {key: statistics.median(values) for key, values in ratios.items()}


def main():
    if not REFERENCE.exists():
        print(f"{REFERENCE} is not built (TESSERA_BENCHES)")
        return SKIPPED
    open_keys = None
    for number in range(ATTEMPTS):
        ratios = attempt()
        open_keys = {key for key in ratios if open_keys is None or key in open_keys}
        for key in sorted(open_keys):
            print(f"attempt {number}: {key[0]} worker(s), {key[1]}: ratio {ratios[key]:.3f}")
        open_keys = {key for key in open_keys if abs(ratios[key] - 1) > TOLERANCE}
        if not open_keys:
            print("bench --stream: within 5 % of independent programs")
            return 0
    load = os.getloadavg()[0]
    if load > os.cpu_count() + LOAD_OF_OTHERS:  # the programs themselves keep every core busy
        print(f"others use the cores (load {load:.1f}): {sorted(open_keys)} cannot be compared")
        return SKIPPED
    print(f"bench_stream_slow.py: more than 5 % apart in {ATTEMPTS} attempts: {sorted(open_keys)}")
    return 1


sys.exit(main())
