"""Logs of the recorder as llama.cpp would make them, drawn without it: one cache, whose cells a test names itself."""

import json
from collections.abc import Sequence
from pathlib import Path

from allocsim.systems.ggml.host_record.cache_cells import CellRecording, cell_recordings
from allocsim.systems.ggml.host_record.record_log import RecordLog, read_log

MEMORY, STATES, COMPUTES, CACHE = 1, 2, 3, 10
IDX, POS, MASK, KEYS, LAID, VIEW, TURNED, ATTENDS, TURN, GRAPH = range(20, 30)
ROW = 64
"""Bytes of a cell."""

LAYER = 40
"""Address of what a layer has, less that of what the one before it has."""


class DrawnLog:
    """Events in the order in which they are asked for; `cells` in each of `streams`, of the keys of some layers."""

    def __init__(self, cells: int = 16, streams: int = 1, layers: int = 1) -> None:
        self.cells, self.streams, self.layers = cells, streams, range(0, layers * LAYER, LAYER)
        self.events: list[dict[str, object]] = [{"e": "start", "recorder": 3, "ggml": "0.26.0", "inplace_ops": []}]
        for at, usage in ((STATES, 0), (COMPUTES, 2)):
            self.say("buffer", at=at, base=at << 20, size=1 << 20, usage=usage, alignment=32, name="CPU")
        for number, of in enumerate(self.layers):
            self.tensor(CACHE + of, "NONE", f"cache_k_l{number}", (16, cells, streams, 1), STATES)

    def say(self, event: str, **fields: object) -> None:
        """Append an event."""
        self.events.append({"e": event, "n": len(self.events), **fields})

    def tensor(self, at: int, op: str, name: str, ne: tuple[int, ...], home: int, **more: object) -> None:
        """Tell of a tensor of 4 bytes an element."""
        nb = [4, 4 * ne[0], 4 * ne[0] * ne[1], 4 * ne[0] * ne[1] * ne[2]]
        given = {"flags": 0, "view_offs": 0, "view_src": 0, "op_params": [], "src": []}
        told = {"nbytes": nb[3] * ne[3], "data": (home << 20) + at * 4096, "buffer": home, **given, **more}
        self.say("tensor", at=at, op=op, name=name, type="f32", ne=list(ne), nb=nb, **told)

    def ask(
        self, word: str, one: int = 0, other: int = 0, *, start: int = 0, stop: int = -1, number: int = 0, **more: int
    ) -> None:
        """Ask something of sequences."""
        asked = {"one": one, "other": other, "number": number, **more, "from": start, "to": stop}
        self.say("sequence", by=MEMORY, word=word, **asked)

    def touch(self, kind: str, low: int, high: int, layer: int = 0) -> None:
        """Read cells of a layer (`get`), or write them (`set`)."""
        self.say(kind, t=CACHE + layer * LAYER, size=(high - low) * ROW, **{"from": low * ROW})

    def turn(self, by: list[int], layers: Sequence[int] | None = None) -> None:
        """Turn each cell by its number, in all layers or some."""
        those = self.layers if layers is None else [LAYER * each for each in layers]
        self.tensor(POS, "NONE", "shift", (len(by), 1, 1, 1), COMPUTES)
        for of in those:
            root = CACHE + of
            self.tensor(VIEW + of, "VIEW", "keys", (16, len(by), 1, 1), STATES, view_src=root, src=[root])
            given = {"view_src": root, "src": [VIEW + of, POS]}
            self.tensor(TURN + of, "ROPE", "turned", (16, len(by), 1, 1), STATES, **given)
        self.say("numbers", t=POS, values=by)
        self.run([POS, *(CACHE + of for of in those)], [at + of for of in those for at in (VIEW, TURN)])

    def run(self, leafs: list[int], nodes: list[int]) -> None:
        """Compute a graph."""
        self.say("graph", at=GRAPH, leafs=leafs, nodes=nodes)
        self.say("run", by=9, graph=GRAPH, waits=True, changed=[], same=[], thread=1)
        self.say("ran", by=9)

    def decode(self, rows: list[list[int | None]], cells: list[int], reads: list[list[int]], **how: object) -> None:
        """Decode tokens, each its position and sequences, into cells, of which each reads ends of ranges; `turned` by
        others than their positions, after `turns` of all cells (of `turned_layers`), over other `values`, with a `status`.
        """
        self.say("batch", by=MEMORY, thread=1, rows=rows)
        if "turns" in how:
            self.turn(how["turns"], how.get("turned_layers"))  # type: ignore[arg-type] - a list
        count, wide = len(rows), self.cells * self.streams
        self.tensor(IDX, "NONE", "idxs", (count, 1, 1, 1), COMPUTES)
        self.tensor(POS, "NONE", "inp_pos", (count, 1, 1, 1), COMPUTES)
        self.tensor(MASK, "NONE", "mask", (wide, count, 1, 1), COMPUTES)
        self.tensor(KEYS, "NONE", "k", (16, count, 1, 1), COMPUTES)
        self.tensor(TURNED, "ROPE", "turned", (16, count, 1, 1), COMPUTES, src=[KEYS, POS])
        for of in self.layers:
            root = CACHE + of
            self.tensor(LAID + of, "SET_ROWS", "laid", (16, wide, 1, 1), STATES, view_src=root, src=[TURNED, IDX, root])
            self.tensor(VIEW + of, "VIEW", "keys", (16, wide, 1, 1), STATES, view_src=root, src=[root])
            read = [TURNED, VIEW + of, how.get("values", VIEW + of), MASK]
            self.tensor(ATTENDS + of, "FLASH_ATTN_EXT", "out", (16, count, 1, 1), COMPUTES, src=read)
        self.say("numbers", t=IDX, values=cells)
        self.say("numbers", t=POS, values=how.get("turned", [row[0] for row in rows]))
        self.say("mask", t=MASK, rows=reads)
        leafs = [IDX, POS, MASK, KEYS, *(CACHE + of for of in self.layers)]
        self.run(leafs, [TURNED, *(at + of for of in self.layers for at in (LAID, VIEW, ATTENDS))])
        self.say("batched", by=MEMORY, thread=1, status=how.get("status", 0))

    def lines(self) -> list[str]:
        """Return the log, a line each."""
        return [json.dumps(event) for event in self.events]

    def read(self, folder: Path) -> RecordLog:
        """Write the log, and read it."""
        path = folder / "drawn.jsonl"
        path.write_text("".join(line + "\n" for line in self.lines()))
        return read_log(path)

    def recording(self, folder: Path) -> CellRecording:
        """Return the cells of its one memory."""
        (found,) = cell_recordings(self.read(folder))
        return found
