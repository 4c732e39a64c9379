"""Logs of a service: how long ten million events take to be read, and how much memory.

    python benchmarks/clicks_served.py [--events 10000000] [--each 2]

Writes a folder as `toprank serve --log` does, lists of ten documents with so many events each, and reads it in another
process: seconds, processor seconds and the peak of its memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

READ = """
import resource, sys, time
import toprank as tr
start, cpu = time.perf_counter(), time.process_time()
log = tr.clicks.read(sys.argv[1])
took, spent = time.perf_counter() - start, time.process_time() - cpu
print(log)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(f"{took:.1f} s, {spent:.1f} s of processor time, {peak:.2f} GB")
"""
DEPTH = 10


def write(folder: Path, events: int, each: int) -> None:
    """Lists of ten documents, and events on the first of them."""
    lists = events // each
    with open(folder / "queries-1.jsonl", "w") as shown, open(folder / "events-1.jsonl", "w") as done:
        for number in range(lists):
            query, name, when = (
                number * 7919 % 20_000,
                f"{number * 2654435761 % 2**64:016x}",
                1_800_000_000_000 + number,
            )
            hits = [f"p{(query + place * (1 + number % 3)) % 50_000}" for place in range(DEPTH)]
            attributes = {"model": "m", "version": "0123456789ab"}
            shown.write(
                f'{{"application":"toprank","query_id":"{name}","timestamp":{when},"user_query":"q{query}",'
                f'"query_response_hit_ids":{json.dumps(hits)},"query_attributes":{json.dumps(attributes)}}}\n'
            )
            for place in range(each):
                done.write(
                    f'{{"application":"toprank","action_name":"click","query_id":"{name}","timestamp":{when + 900},'
                    f'"event_attributes":{{"object":{{"object_id":"{hits[place % DEPTH]}"}}}}}}\n'
                )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=10_000_000)
    arguments.add_argument("--each", type=int, default=10, help="events of a list")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.events, options.each)
        subprocess.run([sys.executable, "-c", READ, folder], check=True)


if __name__ == "__main__":
    main()
