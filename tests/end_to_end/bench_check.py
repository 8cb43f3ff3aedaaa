#!/usr/bin/env python3
"""`tessera bench` on the embedded model: the JSON that the interface promises, numbers that hang together, and options that are refused."""

import json
import subprocess
import sys

TESSERA = sys.argv[1]


def tessera(*arguments):
    return subprocess.run([TESSERA, "bench", "--stream-mib", "64", *arguments], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)


def expect(condition, *what):
    if not condition:
        sys.exit("bench_check.py: " + " ".join(str(part) for part in what))


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def check_phases():
    result = tessera("--prefill", "100", "--decode", "6", "--batch", "3", "--context", "200", "--repeat", "2", "--prefill-rows", "64",
                     "--token-by-token", "--profile", "--json")
    expect(result.returncode == 0 and result.stderr == "", result)
    report = json.loads(result.stdout)
    stream, peak = report["stream_gb_per_s"], report["dot_gflop_per_s"]
    expect(stream > 0 and peak == max(report["fma_gflop_per_s"], report["bf16_dot_gflop_per_s"]) > 0, report)
    for phase in ("decode", "prefill"):
        part = report[phase]
        expect(0 < part["tokens_per_s_min"] <= part["tokens_per_s"] <= part["tokens_per_s_max"], phase, part)
        expect(near(part["gb_per_s"], part["bytes_per_step"] / part["ms_per_step"] / 1e6), phase, part)
        expect(near(part["percent_of_stream"], 100 * part["gb_per_s"] / stream), phase, part)
        expect(near(part["percent_of_dot_peak"], 100 * part["gflop_per_s"] / peak), phase, part)
        expect(part["context"] == 200 and 0 <= part["percent_outside"] < 100, phase, part)
        regions = {region["name"]: region for region in report["regions"] if region["phase"] == phase}
        expect({"outside", "step", "attend", "experts", "head"} <= set(regions), phase, sorted(regions))
        total = sum(region["seconds_total"] for name, region in regions.items() if name != "step")
        expect(abs(total - regions["step"]["seconds_total"]) < 1e-6, phase, "regions and outside make up the step", total)
    expect(report["decode"]["batch"] == 3 and report["decode"]["steps"] == 6, report["decode"])
    expect(near(report["decode"]["tokens_per_s"], 3e3 / report["decode"]["ms_per_step"]), report["decode"])
    expect(report["prefill"]["steps"] == 2 and report["prefill"]["rows_per_step"] == 64, report["prefill"])
    expect(report["prefill"]["chunked_over_token_by_token"] > 0, report["prefill"])


def check_text():
    result = tessera("--decode", "2", "--repeat", "1")
    expect(result.returncode == 0 and "decode batch 1 at context 0" in result.stdout and "% of stream" in result.stdout, result)
    expect("prefill" not in result.stdout, result)


def check_stream():
    result = tessera("--stream", "--repeat", "1", "--json")
    expect(result.returncode == 0, result)
    report = json.loads(result.stdout)
    for name in ("stream_gb_per_s", "gather_gb_per_s", "dot_gflop_per_s"):
        expect(report[name] > 0 and report["by_workers"][-1][name] == report[name], name, report)
    expect(report["by_workers"][0]["workers"] == 1 and "decode" not in report and "prefill" not in report, report)


def check_refusals():
    for arguments, code, words in (
        (["--batch", "0"], 2, "--batch"),
        (["--decode", "x"], 2, "--decode"),
        (["--contex", "5"], 2, "--context"),
        (["--stream", "--decode", "3"], 2, "--stream"),
        (["--stream", "--profile"], 2, "--stream"),
        (["--stream", "--memory-plan"], 2, "--stream"),
        (["--stream", "--batch", "2"], 2, "--stream"),
        (["--decode", "1", "--token-by-token"], 2, "--prefill"),
        (["--decode", "100", "--context", "200", "--max-context", "300"], 1, "301 tokens"),
        (["--decode", "1", "--context", "1000000"], 1, "positions"),
        (["--decode", "1", "-m", "no/such/model"], 1, "no/such/model"),
    ):
        result = tessera(*arguments)
        expect(result.returncode == code and len(result.stderr.splitlines()) == 1 and words in result.stderr, arguments, result)
        expect(result.stdout == "", arguments, result)


check_refusals()
check_stream()
check_text()
check_phases()
print("bench: reports hang together")
