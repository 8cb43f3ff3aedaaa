#!/usr/bin/env python3
"""What a user types wrongly, and what surrounds the program: every bad input ends with one line on stderr that names the file or value, and
with exit code 1 (operating error) or 2 (usage error); outputs that cannot be written are errors; Ctrl-C ends a run with the text so far."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BINARY = sys.argv[1]
TINY = Path("models/tiny")
failures = []


def tessera(*arguments, stdin="", stdout=subprocess.PIPE):
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)


def expect(condition, *what):
    if not condition:
        failures.append(" ".join(map(str, what)))


def expect_error(code, pattern, *arguments, **options):
    """One line on stderr that matches, nothing of an answer on stdout."""
    result = tessera(*arguments, **options)
    lines = result.stderr.splitlines()
    expect(result.returncode == code, arguments, "exit code", result.returncode, "instead of", code, result.stderr)
    expect(len(lines) == 1, arguments, "wrote", len(lines), "lines:", result.stderr)
    expect(re.search(pattern, result.stderr), arguments, "does not say", repr(pattern), "but", result.stderr)


def check_usage():
    expect_error(2, r"--tempratur: unknown option; the nearest is --temperature", "run", "--tempratur", "1", "x")
    expect_error(2, r"--max-sqs=3: unknown option; the nearest is --max-seqs", "run", "--max-sqs=3", "x")
    expect_error(2, r"rum: unknown command; the nearest is run", "rum")
    expect_error(2, r"0 not in range", "run", "-n", "0", "x")
    expect_error(2, r"--ids: at least one token id", "run", "--ids", "")
    expect_error(2, r"'x' is not a token id", "run", "--ids", "1,x")
    expect_error(2, r"--stop-ids: 'x' is not a token id", "run", "--stop-ids", "1,x", "x")
    for text in ("17", "17:", ":3", "17:x", "1:2,", "x:1"):
        expect_error(2, r"--logit-bias: '[^']*' is not a token id and a bias", "run", "--logit-bias", text, "x")
    expect_error(2, r"--logprobs: only --json shows them", "run", "--logprobs", "2", "x")
    expect_error(2, r"--logprobs: Value 21 not in range 0 to 20|--logprobs", "run", "--json", "--logprobs", "21", "x")
    expect_error(2, r"--numerics", "run", "--numerics", "bf8", "x")
    expect_error(2, r"one of --ids-file and --text-file", "eval")
    expect_error(2, r"--seed: -1 is not a whole number", "run", "x", "--seed", "-1")
    expect_error(2, r"--seed: 18446744073709551616 is not a whole number", "run", "x", "--seed", "18446744073709551616")
    expect_error(2, r"--decode-from: Value -1 not in range 0 to 1099511627776", "eval", "--ids-file", "x", "--decode-from", "-1")
    for arguments in (["run", "x", "-m", ""], ["inspect", ""], ["check", ""], ["eval", "--ids-file", "x", "--dump", ""]):
        expect_error(2, r"the name is empty", *arguments)
    options = ("Once upon", "-n", "4", "--temperature", "0")
    expect(tessera("run", "--stop", "zzz", *options).stdout == tessera("run", *options).stdout, "--stop takes one text, not the prompt")
    result = tessera("run", "--help")
    expect(result.returncode == 0 and "--temperature" in result.stdout, "run --help", result)


def check_requests():
    expect_error(1, r"prompt id 4096 at position 1 is outside the vocabulary of 4096", "run", "--ids", "0,4096")
    expect_error(1, r"--ids: -1 is outside", "run", "--ids", "0,-1")
    expect_error(1, r"the prompt has 101 tokens, the context holds 64", "run", "--ids", ",".join(["5"] * 101), "--max-context", "64")
    expect_error(1, r"a context of 999999 tokens was asked for, the model has positions for 4096", "run", "x", "--max-context", "999999")
    expect_error(1, r"temperature", "run", "x", "--temperature", "-1")
    expect_error(1, r"repetition_penalty 0 is not between 0.01 and 100", "run", "x", "--repetition-penalty", "0")
    expect_error(1, r"presence_penalty 3 is not between -2 and 2", "run", "x", "--presence-penalty", "3")
    expect_error(1, r"frequency_penalty -3 is not between -2 and 2", "run", "x", "--frequency-penalty", "-3")
    expect_error(1, r"logit_bias: token 4096 is outside the vocabulary of 4096", "run", "x", "--logit-bias", "4096:1")
    expect_error(1, r"logit_bias: token 5: 101 is not between", "run", "x", "--logit-bias", "5:101")
    expect_error(1, r"logit_bias: token 5 is there twice", "run", "x", "--logit-bias", "5:1,5:2")
    expect_error(1, r"stop_ids: 4096 is outside the vocabulary", "run", "x", "--stop-ids", "4096")
    expect_error(1, r"stop: an empty text ends every answer", "run", "x", "--stop", "")
    expect_error(1, r"4096 tokens need \S+ .B of caches, the budget has 1.05 MB: ask for fewer, or raise --kv-cache-mib",
                 "run", "x", "-n", "100000", "--kv-cache-mib", "1", "--prefill-rows", "2048")
    expect_error(1, r"--ranks 2: this version runs on one rank", "run", "x", "--ranks", "2")
    result = tessera("run", "", "-n", "3", "--json")
    expect(result.returncode == 0 and json.loads(result.stdout)["prompt_ids"] == [0], "an empty prompt is the begin token", result)


def check_sampling():
    """What each sampling flag does to a greedy answer that is known without it."""
    def answer(*arguments):
        result = tessera("run", "Once upon a time", "-n", "24", "--temperature", "0", "--json", *arguments)
        expect(result.returncode == 0, arguments, result)
        return json.loads(result.stdout)

    plain = answer()
    ids = plain["output_ids"]
    banned = answer("--logit-bias", f"{ids[0]}:-100")["output_ids"]
    expect(ids[0] not in banned, "a banned token", banned)
    expect(set(answer("--logit-bias", "77:100")["output_ids"]) == {77}, "a bias of 100 decides")
    stopped = answer("--stop-ids", f"{ids[5]},4000")
    expect(stopped["output_ids"] == ids[: ids.index(ids[5]) + 1] and stopped["finish_reason"] == "stop", "--stop-ids", stopped)
    for flags in (["--repetition-penalty", "2"], ["--presence-penalty", "2"], ["--frequency-penalty", "2"]):
        expect(answer(*flags)["output_ids"] != ids, flags, "changes the answer")
    varied = answer("--repetition-penalty", "100")["output_ids"]
    expect(len(set(varied)) == len(varied), "nothing is said twice", varied)
    logs = answer("--logprobs", "3")
    expect(logs["output_ids"] == ids and len(logs["logprobs"]) == len(ids), "--logprobs", logs)
    for token_id, entry in zip(ids, logs["logprobs"]):
        expect(entry["token_id"] == token_id == entry["top"][0]["token_id"], "greedy takes the most probable", entry)
        expect(entry["logprob"] == entry["top"][0]["logprob"] and len(entry["top"]) == 3, entry)
        expect(0 >= entry["logprob"] >= entry["top"][1]["logprob"] >= entry["top"][2]["logprob"], entry)
    expect("logprobs" not in plain, "no log probabilities unless asked for", plain)


def check_memory_plan():
    result = tessera("run", "x", "--memory-plan", "--json", "--max-seqs", "3", "--max-context", "512", "--kv-cache-mib", "5")
    plan = json.loads(result.stdout)
    state = plan["sequence_state"]
    expect(state["budget_bytes"] == 5 << 20 and state["max_seqs"] == 3 and state["max_context"] == 512, state)
    expect(state["bytes_per_token"] > 0 and state["bytes_per_sequence"] % 4096 == 0, state)
    expect({"weights", "sequence state"} <= {entry["label"] for entry in plan["entries"]}, plan)
    auto = json.loads(tessera("run", "x", "--memory-plan", "--json", "--max-seqs", "3", "--max-context", "512").stdout)["sequence_state"]
    expect(auto["bytes_per_sequence"] <= auto["budget_bytes"] <= 3 * auto["bytes_per_sequence"], auto)
    expect(re.search(r"B a token, .* for one of 512 tokens", tessera("run", "x", "--memory-plan", "--max-context", "512").stdout), "ledger")


def check_files(folder):
    expect_error(1, r"/nonexistent: no such directory", "run", "-m", "/nonexistent", "x")
    expect_error(1, r"nowhere.txt: cannot open", "run", "--prompt-file", folder / "nowhere.txt")
    bad = folder / "latin1.txt"
    bad.write_bytes(b"caf\xe9 au lait")
    expect_error(1, r"latin1.txt: .*UTF-8", "run", "--prompt-file", bad)
    expect_error(1, r"is a directory", "run", "--prompt-file", folder)
    ids = folder / "ids.json"
    bad_lists = {"[]": "a list", '["a"]': "not a token id", "[[1],2]": "mixed", "{": "not valid JSON", "[9999]": "vocabulary"}
    for text, pattern in bad_lists.items():
        ids.write_text(text)
        expect_error(1, pattern, "eval", "--ids-file", ids)
    ids.write_text("[[0], []]")
    expect_error(1, r"ids.json, list 1: a list of ids is empty", "eval", "--ids-file", ids)
    expect_error(1, r"latin1.txt: not valid UTF-8 at byte 3", "eval", "--text-file", bad)
    ids.write_text("[0, 884, 511]")
    expect_error(1, r"cannot (open|write)", "eval", "--ids-file", ids, "--dump", "/proc/nothing.safetensors")
    if os.path.exists("/dev/full"):
        expect_error(1, r"/dev/full: .*No space left", "eval", "--ids-file", ids, "--dump", "/dev/full")
        with open("/dev/full", "w") as full:
            expect(tessera("--help", stdout=full).returncode == 1, "--help on a full device")
            for arguments in (["run", "Once", "-n", "3"], ["run", "Once", "-n", "3", "--json"], ["inspect"], ["tokenize", "hello"]):
                result = tessera(*arguments, stdout=full)
                expect(result.returncode == 1 and "standard output" in result.stderr, arguments, "on a full device", result)
    # Every way in which the folder of a model can be incomplete.
    for missing in ("config.json", "tokenizer.json", "model-00002-of-00002.safetensors"):
        broken = folder / "broken"
        shutil.copytree(TINY, broken)
        (broken / missing).unlink()
        expect_error(1, re.escape(missing), "run", "-m", broken, "x")
        shutil.rmtree(broken)


def check_generation_config(folder):
    model = folder / "configured"
    shutil.copytree(TINY, model)
    config = model / "generation_config.json"
    for text, pattern in {'{"top_k": 1e300}': "top_k: 1e.300 is not a whole number", '{"top_k": 2.5}': "top_k: 2.5 is not a whole number",
                          '{"temperature": 1e39}': "temperature: 1e.39 is not a number", '{"top_p": "x"}': "a number was expected"}.items():
        config.write_text(text)
        expect_error(1, r"generation_config.json: .*" + pattern, "run", "-m", model, "x")
    config.write_text('{"do_sample": false, "repetition_penalty": 2.0}')
    options = ("Once upon a time", "-n", "24", "--temperature", "0")
    configured = tessera("run", "-m", model, *options[:3]).stdout
    penalized = tessera("run", *options, "--repetition-penalty", "2").stdout
    expect(configured == penalized, "repetition_penalty of generation_config.json", configured)
    expect(configured != tessera("run", *options).stdout, "it changes the answer", configured)
    overridden = tessera("run", "-m", model, *options[:3], "--repetition-penalty", "1").stdout
    expect(overridden == tessera("run", *options).stdout, "the flag goes before the file", overridden)


def check_selfcheck(folder):
    """A build beside a model whose weights are sound and wrong: the answers tell."""
    house = folder / "house"
    (house / "build" / "release").mkdir(parents=True)
    binary = shutil.copy(BINARY, house / "build" / "release" / "tessera")
    shutil.copytree(TINY, house / "models" / "tiny")
    shard = house / "models" / "tiny" / "model-00001-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    header_bytes = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + header_bytes])["embed.weight"]
    begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
    data[begin:end] = data[end - 512 : end] + data[begin : end - 512]  # every token has its neighbour's row of 256 bf16
    shard.write_bytes(data)
    result = subprocess.run([binary, "selfcheck"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    expect(result.returncode == 1 and re.search(r"FAIL known answers: \d+ of 34", result.stdout), "selfcheck of a wrong model", result)


def check_determinism():
    first, second = (tessera("run", "Once upon a time", "-n", "24").stdout for _ in range(2))
    expect(first == second and len(first) > 20, "the same command prints the same text", first, second)
    greedy = json.loads(tessera("run", "In the beginning", "--temperature", "0", "-n", "8", "--json", "--numerics", "fp32").stdout)
    golden = next(c for c in json.load(open("tests/golden/tiny/golden.json"))["cases"] if c["prompt"] == "In the beginning")
    expect(greedy["prompt_ids"] == golden["input_ids"], greedy["prompt_ids"])
    expect(greedy["output_ids"] == golden["output_ids"][:8], greedy["output_ids"])
    one = tessera("run", "Once upon a time", "-n", "24", "--threads", "1", "--prefill-rows", "3").stdout
    expect(one == first, "threads and chunks change nothing", one)


def check_interrupt():
    command = [BINARY, "run", "Once upon a time", "-n", "3000", "--ignore-eos"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begin = process.stdout.read1(64)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    expect(process.returncode == 130, "exit code after Ctrl-C", process.returncode, errors)
    expect(len(begin) > 0 and rest.endswith(b"\n") and errors == b"", "text so far", begin, rest[-20:], errors)


def check_chat():
    lines = ("/help", "What does river mean?", "/think maybe", "/rest", "/system Be brief.", "/reset", "/quit", "never")
    result = tessera("chat", "--temperature", "0", stdin="\n".join(lines) + "\n")
    expect(result.returncode == 0 and "river" in result.stdout, "chat", result)
    expect("/think on or /think off" in result.stdout and "the nearest is /reset" in result.stdout, "chat commands", result.stdout)


with tempfile.TemporaryDirectory() as temporary:
    check_usage()
    check_requests()
    check_sampling()
    check_memory_plan()
    check_files(Path(temporary))
    check_generation_config(Path(temporary))
    check_selfcheck(Path(temporary))
    check_determinism()
    check_interrupt()
    check_chat()
print("\n".join(failures) if failures else "ok")
sys.exit(1 if failures else 0)
