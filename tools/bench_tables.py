#!/usr/bin/env python3
"""Prints the tables of docs/performance.md (markdown): decode at batch 1 to 32 and prefill of 128 and 512 rows, at context 0 and 4,096, on
random checkpoints of real widths. The checkpoints (12 GB) are made in DIR with `tessera synth` where they are not there yet. Needs the
release build (./test --fast) and a quiet machine: some ten minutes.

  tools/bench_tables.py DIR           both models
  tools/bench_tables.py DIR --tiny    tiny shapes and few repeats: tries the tool, the numbers mean nothing
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESSERA = ROOT / "build" / "release" / "tessera"

# Eight layers hold each kind once, thirty-two experts keep a step's weights far above every cache, and a vocabulary of 32,768 gives the
# head about the share it has in the whole model.
MODELS = {
    "synth V4-Flash, 8 layers, 32 experts": ["--like", "v4-flash", "--layers", "8", "--experts", "32", "--vocab", "32768"],
    "synth V4.1-Flash, 8 layers, 32 experts": ["--like", "v4.1-flash", "--layers", "8", "--experts", "32", "--vocab", "32768",
                                               "--engram-rows", "1000000"],
}
TINY_MODELS = {"tiny V4": ["--like", "tiny-v4"], "tiny V4.1": ["--like", "tiny-v4.1"]}


class Sizes:
    def __init__(self, tiny):
        self.batches = (1, 3) if tiny else (1, 2, 4, 8, 16, 32)
        self.contexts = (0, 64) if tiny else (0, 4096)
        self.prompts = (16, 40) if tiny else (128, 512)
        self.decode = 2 if tiny else 4
        self.repeat = 1 if tiny else 3
        self.stream = ["--stream-mib", "64"] if tiny else []


def run(*command):
    process = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if process.returncode != 0:
        sys.exit(f"bench_tables.py: {' '.join(str(part) for part in command)} ended with {process.returncode}")
    return process.stdout


def bench(model, sizes, *arguments):
    print("  bench", *arguments, file=sys.stderr, flush=True)
    return json.loads(run(TESSERA, "bench", "-m", model, "--json", "--repeat", sizes.repeat, *sizes.stream, *arguments))


def make_model(folder, name, shape):
    model = folder / name.replace(",", "").replace(" ", "-").lower()
    if not (model / "config.json").exists():
        print(f"writing {model}", file=sys.stderr, flush=True)
        run(TESSERA, "synth", model, *shape)
    return model


def spread(part):
    return f"{part['tokens_per_s']:,.1f} ({part['tokens_per_s_min']:,.1f} – {part['tokens_per_s_max']:,.1f})"


def decode_table(model, sizes):
    print("| decode: batch | context | tokens/s | ms a step | GB a step | GB/s | stream GB/s | % of stream | outside regions |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for context in sizes.contexts:
        for batch in sizes.batches:
            report = bench(model, sizes, "--decode", sizes.decode, "--batch", batch, "--context", context)
            part = report["decode"]
            print(f"| {batch} | {context:,} | {spread(part)} | {part['ms_per_step']:.1f} | {part['bytes_per_step'] / 1e9:.3f} "
                  f"| {part['gb_per_s']:.1f} | {report['stream_gb_per_s']:.1f} | {part['percent_of_stream']:.0f} % "
                  f"| {part['percent_outside']:.2f} % |", flush=True)


def prefill_table(model, sizes):
    print("\n| prefill: rows | context | tokens/s | GFLOP/s | dot peak GFLOP/s | % of dot peak | GB a step | times token by token |\n"
          "|---|---|---|---|---|---|---|---|")
    for context in sizes.contexts:
        for rows in sizes.prompts:
            against = ["--token-by-token"] if context == 0 and rows == sizes.prompts[0] else []
            report = bench(model, sizes, "--prefill", rows, "--context", context, *against)
            part = report["prefill"]
            ratio = f"{part['chunked_over_token_by_token']:.1f}" if against else ""
            print(f"| {rows} | {context:,} | {spread(part)} | {part['gflop_per_s']:.0f} | {report['dot_gflop_per_s']:.0f} "
                  f"| {part['percent_of_dot_peak']:.0f} % | {part['bytes_per_step'] / 1e9:.3f} | {ratio} |", flush=True)


def cpu_name():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else "unknown CPU"


def main():
    parser = argparse.ArgumentParser(prog="tools/bench_tables.py", description="Prints the tables of docs/performance.md.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="where the checkpoints are or will be (12 GB)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few repeats, to try the tool")
    arguments = parser.parse_args()
    if not TESSERA.exists():
        sys.exit(f"bench_tables.py: {TESSERA} is missing; build it with ./test --fast")
    load = os.getloadavg()[0]
    if load > 0.5 and not arguments.tiny:
        print(f"bench_tables.py: the load is {load:.1f}: other work takes part of every rate", file=sys.stderr)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sizes = Sizes(arguments.tiny)
    print(f"{cpu_name()}; medians of {sizes.repeat} repeats (least – largest); limits measured between the repeats.")
    for name, shape in (TINY_MODELS if arguments.tiny else MODELS).items():
        model = make_model(arguments.folder, name, shape)
        print(f"\n**{name}** (`tessera synth DIR {' '.join(shape)}`)\n", flush=True)
        decode_table(model, sizes)
        prefill_table(model, sizes)


main()
