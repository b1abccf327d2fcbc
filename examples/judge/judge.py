#!/usr/bin/env python3
"""A judge: each submission is compiled once and run for all inputs, each in a sandbox of its own; verdicts as judges name them.

    cargo build --release && python3 examples/judge/judge.py                # every submission in submissions/
    python3 examples/judge/judge.py mine.cpp                                # yours

The problem is to print the n-th Fibonacci number modulo 1,000,000,007 for n up to 10^18; tests.jsonl holds 100 inputs and
their answers. `--json` prints a line for each submission with the verdict and the figures of every input. See ../client.py for
how to use a daemon that runs already.
"""

import argparse
import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from client import daemon  # noqa: E402

LANGUAGES = {".c": "c", ".cpp": "cpp", ".py": "python", ".js": "javascript", ".go": "go", ".java": "java", ".rs": "rust"}
# Of one input. Judges count CPU time; wall time is for programs that sleep.
LIMITS = {"cpu_time_ms": 1_000, "wall_time_ms": 60_000, "memory_bytes": 64 << 20, "output_bytes": 64 << 10}
# The cause of a stop is the kernel's evidence, so that none of these is guessed from how much was used.
OF_A_STOP = {"cpu_time": "TLE", "wall_time": "TLE", "memory": "MLE", "output": "OLE", "disk": "RE", "processes": "RE"}


def main():
    parser = argparse.ArgumentParser(description="Judges submissions; exits with 0 when all of them are accepted, 1 when one is not.")
    parser.add_argument("submissions", nargs="*", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each submission")
    args = parser.parse_args()
    tests = [json.loads(line) for line in (HERE / "tests.jsonl").read_text().splitlines()]
    accepted = True
    with daemon() as client:
        for path in args.submissions or sorted((HERE / "submissions").iterdir()):
            report = judge(client, path, tests)
            accepted &= report["verdict"] == "AC"
            print(json.dumps(report) if args.json else line_of(report), flush=True)
    return 0 if accepted else 1


def judge(client, path, tests):
    language = LANGUAGES.get(path.suffix)
    if language is None:
        sys.exit(f"{path}: no language has this extension here; those that have: {' '.join(LANGUAGES)}")
    record = client.run(
        language=language,
        code=path.read_text(),
        inputs=[{"stdin": test["stdin"]} for test in tests],
        limits=LIMITS,
        # The whole submission, compiling included.
        deadline_ms=600_000,
    )
    if record["stage"] == "compile":
        return {"submission": path.name, "verdict": "CE", "detail": record["stderr"]["data"], "tests": []}
    judged = [judge_one(result, test) for result, test in zip(record["inputs"], tests, strict=True)]
    # The verdict on a submission is that of the first test that it does not pass.
    verdict = next((test["verdict"] for test in judged if test["verdict"] != "AC"), "AC")
    return {"submission": path.name, "verdict": verdict, "tests": judged}


def judge_one(result, test):
    usage = result["usage"] or {}
    return {
        "verdict": verdict_of(result, test["expected"]),
        "cpu_ms": usage.get("cpu_ms"),
        "memory_peak_bytes": usage.get("memory_peak_bytes"),
        "run_id": result["run_id"],
    }


def verdict_of(result, expected):
    ending = result["ending"] or {"kind": "not_run"}
    if ending["kind"] == "stopped":
        # Somebody who cancels says nothing about the program; nor does what never started.
        return OF_A_STOP.get(ending["cause"], "IE")
    if ending["kind"] == "signaled":
        return "RE"
    if ending["kind"] != "exited":
        return "IE"
    if result["exit_code"] != 0:
        return "RE"
    return "AC" if result["stdout"]["data"].split() == expected.split() else "WA"


def line_of(report):
    counts = collections.Counter(test["verdict"] for test in report["tests"])
    counted = " ".join(f"{name}×{count}" for name, count in counts.most_common())
    slowest = max((test["cpu_ms"] or 0 for test in report["tests"]), default=0)
    return f"{report['submission']:14} {report['verdict']:3}  {counted:14} slowest {slowest:6.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
