"""Configurations of MobileNetV1 224 priced per second, from cold, and the memory that it takes; peers' times beside it.

    python benchmarks/sweep_speed.py [--points N | --points all] [--workers 1 2] [--cluster]

The space is docs/examples/spaces/mobilenet_v1.toml, 10,080 configurations in all. Every run starts its own workers and
an empty store, without a schedule cache. Wall time is from before the workers start to the last point in the store;
CPU time is that of driver and workers together, and what the peers' times are compared with.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from dovetail.flows.explore.space.design_space import Plan, Space
from dovetail.flows.explore.space.file import load
from dovetail.flows.explore.space.networks import read_all
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.sweep import Means, Progress, sweep

SPACE = Path(__file__).parent.parent / "docs" / "examples" / "spaces" / "mobilenet_v1.toml"
"""Lanes, depthwise, stripe, bus and SRAM: 10,080 configurations."""
ONE = ("--lanes", "16x16", "--depthwise", "native", "--sram", "512KiB", "--bus", "128")
"""One configuration of the size of the peers' (256 PEs)."""
MIB = 1 << 20
INTERVAL = 0.5
"""Seconds between looks at the memory."""


@dataclass(frozen=True)
class Peer:
    """What a tool takes for MobileNetV1 1.0 224 on one configuration, on a two-core Linux machine.

    ``seconds`` of CPU, start-up included, unless ``how`` says otherwise; ``answer``: what one gets for it.
    """

    name: str
    seconds: float
    how: str
    answer: str


PEERS = (
    Peer("SCALE-Sim 3.0.0, 16x16 output stationary", 229, "whole run", "3.68 M cycles; not compared with RTL"),
    Peer("SCALE-Sim 3.0.0, 8x8 output stationary", 708, "whole run", "11.5 M cycles; not compared with RTL"),
    Peer("ZigZag 3.9.1, automatic spatial mapping, lpf 4", 25, "whole run, 256 PEs", "3.18 M cycles; not compared"),
    Peer("Timeloop (2022), 28 mapper calls", 26, "26 to 35 s", "20 M cycles, depthwise as it comes; not compared"),
    Peer("Vela 5.2.0, Ethos-U55-256", 0.75, "whole run", "3.6 M cycles, an estimate; RTL is closed"),
    Peer(
        "ChipLeap 0.3.0 explore", 0.0013, "closed form, in a loop", "an estimate: mean error 2.1 % with random stalls"
    ),
    Peer("STONNE, 64 multipliers", 460, "extrapolated from 20,000 cycles/s", "simulated, of its own architecture"),
)


@dataclass
class Memory:
    """MiB of the driver and of its largest worker, with the points that were done then."""

    samples: list[tuple[int, float, float]] = field(default_factory=list)
    done: int = 0

    def look(self) -> None:
        """Take a sample."""
        driver = psutil.Process()
        workers = [_rss(child) for child in driver.children(recursive=True)]
        self.samples.append((self.done, _rss(driver), max(workers, default=0.0)))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take samples all the time."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(INTERVAL):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.look()

    def show(self, total: int) -> None:
        """Print its course, in quarters of the points."""
        print("  points done: median MiB of the driver, of the largest worker")
        medians = []
        for quarter in range(4):
            low, high = total * quarter / 4, total * (quarter + 1) / 4
            inside = [s for s in self.samples if low <= s[0] < high or s[0] == high == total]
            if inside:
                medians.append((statistics.median(s[1] for s in inside), statistics.median(s[2] for s in inside)))
                print(f"  {low:,.0f} to {high:,.0f}: {medians[-1][0]:.0f}, {medians[-1][1]:.0f}")
        if len(medians) == 4:
            driver, worker = (medians[3][i] - medians[1][i] for i in range(2))
            print(f"  from the second quarter to the last: driver {driver:+.0f} MiB, worker {worker:+.0f} MiB")


def _rss(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / MIB
    except psutil.Error:  # it has just ended
        return 0.0


def cpu() -> float:
    """CPU seconds of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(space: Space, workers: int, *, cluster: bool) -> tuple[float, float]:
    """Sweep from cold; prints rate and memory, returns wall and CPU seconds per configuration."""
    memory = Memory()
    before = cpu()

    def notify(progress: Progress) -> None:
        memory.done = progress.done

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(Store(Path(folder) / "results.sqlite", write=True))
        means = Means(workers)
        start = time.perf_counter()
        if cluster:
            from distributed import LocalCluster

            found = stack.enter_context(
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs="ERROR"
                )
            )
            means = Means(scheduler=found.scheduler_address)
        with memory.watched():
            last = sweep(store, space, read_all(space), means, notify)
        seconds = time.perf_counter() - start
        print(
            f"{'Dask cluster' if cluster else 'processes'}, {workers} workers: {last.done:,} configurations in"
            f" {seconds:.1f} s, {last.done / seconds:.2f}/s; {last.failed} failed",
            flush=True,
        )
        used = cpu() - before
        memory.show(last.done)
        if not cluster:
            again(store, space)
    return seconds / last.done, used / last.done


def again(store: Store, space: Space) -> None:
    """The same sweep once more: everything is in the store."""
    start = time.perf_counter()
    last = sweep(store, space, read_all(space), Means(1), lambda progress: None)
    swept = time.perf_counter() - start
    rows = store.results().rows
    print(f"  again: {last.reused:,} reused in {swept:.2f} s; {len(rows):,} rows read in "
          f"{time.perf_counter() - start - swept:.2f} s")  # fmt: skip


def one() -> float:
    """CPU seconds of the command with one configuration, start-up included."""
    code = "import sys; from dovetail.flows.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ("--no-schedule-cache", "--json", "--jobs", "1")
    before = cpu()
    command = [sys.executable, "-c", code, "sweep", "zoo:mobilenet_v1", *ONE, *options]
    subprocess.run(command, check=True, capture_output=True)
    return cpu() - before


def compare(alone: float, swept: float) -> None:
    """Print the peers' times over ours."""
    print(f"dovetail sweep with one configuration of 256 PEs, start-up included: {alone:.2f} CPU seconds")
    print(f"a configuration of a sweep, start-up shared: {swept:.3f} CPU seconds")
    print("peer, seconds per configuration (how): times ours alone, times ours in a sweep; what it says")
    for peer in PEERS:
        print(
            f"{peer.name}, {peer.seconds:g} ({peer.how}): {peer.seconds / alone:.3g}, {peer.seconds / swept:.3g};"
            f" {peer.answer}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="60", metavar="N|all", help="drawn at random; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument("--cluster", action="store_true", help="Dask clusters of these sizes, too")
    arguments = parser.parse_args()
    plan = Plan() if arguments.points == "all" else Plan("random", int(arguments.points), arguments.seed)
    space = replace(load(SPACE), search=plan)
    count = space.count()
    print(f"{plan.points or count:,} of {count:,} configurations")
    times = {workers: measure(space, workers, cluster=False) for workers in arguments.workers}
    first = min(times)
    for workers, (seconds, used) in times.items():
        print(
            f"{workers} workers: {times[first][0] / seconds:.2f} times the rate of {first}; {used:.3f} CPU seconds per"
            " configuration"
        )
    if arguments.cluster:
        for workers in arguments.workers:
            measure(space, workers, cluster=True)
    compare(one(), times[first][1])


if __name__ == "__main__":
    main()
