#!/usr/bin/env python3
"""A reward worker: completions of a model go in, a reward for each comes out; many are run at once, each in a sandbox of its own.

    cargo build --release && python3 examples/reward/reward.py              # the problems and completions beside this file
    python3 examples/reward/reward.py --problems HumanEval.jsonl.gz         # HumanEval, its reference solutions as completions
    python3 examples/reward/reward.py --problems HumanEval.jsonl.gz --completions samples.jsonl

Problems and completions have the form of HumanEval: lines of JSON with `task_id`, `prompt`, `entry_point`, `test` and
`canonical_solution`; `task_id` and `completion`. Rewards go to standard output, a line of JSON each, in the order of the
completions; the summary goes to standard error. COFFERDAM_HUMANEVAL names a file of problems as `--problems` does. See
../client.py for how to use a daemon that runs already.

The reward is 1 only where the test returned: a completion that ends the process, with whatever exit code, or prints whatever
it likes, gets 0. Test and completion share a process, as HumanEval has it: a model that is trained against this for long may
learn to reach into the test itself. Give it problems whose answers are compared outside then, as judge.py does.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from client import daemon  # noqa: E402

LIMITS = {"cpu_time_ms": 3_000, "wall_time_ms": 60_000, "memory_bytes": 256 << 20, "output_bytes": 64 << 10}
SAMPLE = HERE / "problems.jsonl"


def main():
    parser = argparse.ArgumentParser(description="Runs completions against the tests of their problems and tells their rewards.")
    parser.add_argument("--problems", type=pathlib.Path, default=pathlib.Path(os.environ.get("COFFERDAM_HUMANEVAL") or SAMPLE))
    parser.add_argument("--completions", type=pathlib.Path, help="without it: those beside the sample, or the reference solutions")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1), metavar="N", help="runs at the same time")
    args = parser.parse_args()
    problems = {problem["task_id"]: problem for problem in read(args.problems)}
    work = completions(args, problems)
    began = time.monotonic()
    rewards = []
    with daemon() as client, concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        for reward in pool.map(lambda one: rewarded(client, problems[one["task_id"]], one["completion"]), work):
            rewards.append(reward["reward"])
            print(json.dumps(reward), flush=True)
    took = time.monotonic() - began
    passed = sum(rewards)
    rate = passed / len(rewards) if rewards else 0
    print(
        f"{passed} of {len(rewards)} passed ({rate:.1%}); {took:.1f} s, {len(rewards) / took:.0f} runs/s, {args.at_once} at once",
        file=sys.stderr,
    )
    return 0


def completions(args, problems):
    path = args.completions or (HERE / "completions.jsonl" if args.problems == SAMPLE else None)
    if path is None:
        return [{"task_id": name, "completion": problem["canonical_solution"]} for name, problem in problems.items()]
    found = read(path)
    unknown = sorted({one["task_id"] for one in found} - problems.keys())
    if unknown:
        sys.exit(f"{path}: there is no problem {', '.join(unknown)} in {args.problems}")
    return found


def rewarded(client, problem, completion):
    # What the handler must give back is new each time, so that no completion can know it.
    token = uuid.uuid4().hex
    call = f"\n\ndef handler(event):\n    check({problem['entry_point']})\n    return event\n"
    code = problem["prompt"] + completion + "\n" + problem["test"] + call
    record = client.run(language="python", code=code, event=token, limits=LIMITS)
    passed = record["return_value"] == token
    return {
        "task_id": problem["task_id"],
        "reward": int(passed),
        "why": "passed" if passed else why(record),
        "cpu_ms": (record["usage"] or {}).get("cpu_ms"),
        "run_id": record["run_id"],
    }


def why(record):
    ending = record["ending"]
    if ending["kind"] == "stopped":
        return ending["cause"]
    if record["raised"]:
        return record["raised"]["type"]
    return record["signal"] or ending["kind"]


def read(path):
    try:
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        with opened as lines:
            return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}; it must hold lines of JSON")


if __name__ == "__main__":
    sys.exit(main())
