"""What `load_config` returns: plain frozen values, normalised, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataMode:
    """Which directions and which roles are recorded.

    Directions and roles each default to both: `["input"]` means the inputs of forward and backward.
    """

    forward: bool = True
    backward: bool = True
    input: bool = True
    output: bool = True

    @classmethod
    def from_names(cls, names: tuple[str, ...]) -> DataMode:
        """Builds it from the words of the file; no word, or `all`, means everything."""
        chosen = set(names)
        directions = chosen & {"forward", "backward"} or {"forward", "backward"}
        roles = chosen & {"input", "output"} or {"input", "output"}
        return cls("forward" in directions, "backward" in directions, "input" in roles, "output" in roles)


@dataclass(frozen=True, slots=True)
class Section:
    """The settings of one task; what a task does not have keeps its default, so that callers need not ask first."""

    scope: tuple[str, ...] = ()
    list: tuple[str, ...] = ()
    tensor_list: tuple[str, ...] = ()
    data_mode: DataMode = DataMode()
    summary_mode: str | tuple[str, ...] = "statistics"
    bench_path: str | None = None
    diff_nums: int = 1
    device: str = "host"
    file_format: str = "npy"
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    error_data_path: str = "./"
    check_mode: str = "all"


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """The `load` section: module inputs that are replaced by recorded ones.

    Empty `step` or `rank` means all. `source_step` and `source_rank` None: the data are those of the running step and rank.
    """

    path: str
    modules: tuple[str, ...]
    step: frozenset[int] = frozenset()
    rank: frozenset[int] = frozenset()
    dump_after_load: bool = False
    cast: bool = False
    source_step: int | None = None
    source_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """One valid configuration. `rank` and `step` are sets of ids, empty meaning all; `dump_path` has `~` expanded."""

    framework: str
    source: str
    task: str
    dump_path: str
    level: str
    rank: frozenset[int]
    step: frozenset[int]
    async_dump: bool
    dump_enable: bool | None
    extra_info: bool
    precision: str
    risk_level: str
    load: LoadConfig | None
    section: Section
    ops_dir: str | None = None

    @property
    def records(self) -> bool:
        """Whether anything is recorded at all: with `load`, only where `dump_after_load` says so."""
        return self.load is None or self.load.dump_after_load
