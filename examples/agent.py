#!/usr/bin/env python3
"""An agent that writes code, runs it in a sandbox over HTTP, reads the record and repairs what it wrote.

    cargo build --release && python3 examples/agent.py

The loop is real, the model is not: ScriptedModel is a stand-in that looks at the record as a model would and answers from a
table. Put a call of your model in its place; everything else stays. See client.py for how to use a daemon that runs already.
"""

import sys

from client import daemon

TASK = "Write handler(n): the sum of all primes below n."
# What the code is called with and what it must return. The model never sees the answers.
CASES = [(10, 17), (2, 0), (100_000, 454_396_537)]
LIMITS = {"cpu_time_ms": 1_000, "wall_time_ms": 60_000, "memory_bytes": 128 << 20, "output_bytes": 64 << 10}
ATTEMPTS = 5


class ScriptedModel:
    """A stand-in for a language model: what it proposes next depends on what the record said of the last attempt."""

    FIRST = """
def handler(n):
    return sum(k for k in range(n) if is_prime(k))
"""
    REPAIRS = [
        ("NameError", """
def is_prime(k):
    return all(k % d for d in range(2, k))

def handler(n):
    return sum(k for k in range(n) if is_prime(k))
"""),
        ("returned", """
def is_prime(k):
    return k > 1 and all(k % d for d in range(2, k))

def handler(n):
    return sum(k for k in range(n) if is_prime(k))
"""),
        ("stopped", """
def handler(n):
    sieve = bytearray([1]) * n
    sieve[:2] = bytes(min(n, 2))
    for k in range(2, int(n ** 0.5) + 1):
        if sieve[k]:
            sieve[k * k :: k] = bytes(len(range(k * k, n, k)))
    return sum(k for k in range(n) if sieve[k])
"""),
    ]

    def propose(self, task, feedback):
        if feedback is None:
            return self.FIRST
        return next((code for sign, code in self.REPAIRS if sign in feedback), self.FIRST)


def main():
    model, feedback = ScriptedModel(), None
    print(TASK)
    with daemon() as client:
        for attempt in range(1, ATTEMPTS + 1):
            code = model.propose(TASK, feedback)
            feedback = first_fault(client, code)
            print(f"attempt {attempt}: {feedback or 'right'}")
            if feedback is None:
                return 0
    print(f"given up after {ATTEMPTS} attempts")
    return 1


def first_fault(client, code):
    """What a model needs to hear of the first case that went wrong; None when none did."""
    for event, expected in CASES:
        record = client.run(language="python", code=code, event=event, limits=LIMITS)
        fault = fault_of(record, expected)
        if fault:
            return f"handler({event}) {fault}"
    return None


def fault_of(record, expected):
    ending = record["ending"]
    if ending["kind"] == "stopped":
        return ending["detail"]
    if ending["kind"] != "exited":
        return f"ended by {record['signal']}" if record["signal"] else ending["message"]
    if record["raised"]:
        return f"raised {record['raised']['type']}: {record['raised']['message']}"
    # The value comes over a channel of its own: nothing that the code prints can be taken for it.
    if record["return_value"] != expected:
        return f"returned {record['return_value']}, which is wrong"
    return None


if __name__ == "__main__":
    sys.exit(main())
