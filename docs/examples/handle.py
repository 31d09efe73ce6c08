# %% [markdown]
# # A block to play with
# `Handle` makes an interactive object of any Amaranth component, Verilog file or whole accelerator: ports, internal
# signals and memories by name, clock ticks, waves. In an editor that knows `# %%` cells this file is a notebook; as a
# script it prints what every cell shows.

# %%
import sys
import tempfile
from pathlib import Path

from dovetail.cosim.handle.design import Handle
from dovetail.hw.common.ports import EntryKind
from dovetail.hw.sequencer.queue import Queue

cache = Path(sys.argv[1]) if len(sys.argv) > 1 else None  # of the builds; None: the usual one
queue = Handle(Queue(depth=4), cache=cache)
queue.reset()
print(queue)

# %% [markdown]
# Push an entry. The payload is a structure of 78 bits: an integer, or a mapping of its fields.

# %%
queue.i__payload = {"kind": EntryKind.CFG, "code": 0x15, "value": 1000, "pc": 7}
queue.i__valid = 1
queue.clock.tick()
print("level", queue.level, "tail", queue.tail, "oldest", queue.fields("o__payload").value)

# %% [markdown]
# Nobody takes entries, so three more fill it. Internal signals and rows of memories are read like ports.

# %%
for value in (2000, 3000, 4000):
    queue.i__payload = {"kind": EntryKind.CFG, "code": 0x15, "value": value, "pc": 8}
    queue.clock.tick()
print(
    "level", int(queue.level), "ready", int(queue.i__ready), "rows", [row >> 14 & 0xFFFF_FFFF for row in queue.entries]
)

# %% [markdown]
# Internal registers can be written too: say that there is room.

# %%
queue.full = 0
print("ready", int(queue.i__ready), "oldest", queue.fields("o__payload").value)

# %% [markdown]
# A wrong name says what it might have been.

# %%
try:
    print(queue.o_valid)
except AttributeError as error:
    print(error)

# %% [markdown]
# Waves of the next cycles, for GTKWave or Surfer.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "queue.vcd"
    queue.waves(path)
    queue.i__valid = 0
    queue.o__ready = 1
    queue.clock.tick(4)
    queue.waves(None)
    print("level", int(queue.level), "waves", "written" if path.stat().st_size else "empty")
queue.close()
