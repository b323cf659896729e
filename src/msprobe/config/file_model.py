"""The whole of config.json as typed models: fields, defaults, meaning. The JSON Schema and the reference tables come from here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from msprobe.config.values import (
    CheckMode,
    DataModes,
    Device,
    DiffNums,
    FileFormat,
    Ids,
    Level,
    ModuleCalls,
    Names,
    Path,
    Precision,
    RiskLevel,
    SourceId,
    SummaryMode,
    Task,
)

_SCOPE = ["Module.conv1.Conv2d.forward.0", "Module.fc2.Linear.forward.0"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _names(default: tuple[str, ...], description: str, example: list[str]) -> Any:
    return Field(default=default, description=description, examples=[example])


class _Selecting(_Model):
    scope: Names | None = _names((), "Two full names; only what runs from the first to the second is recorded, both included.", _SCOPE)
    # The key is part of the file format; within these classes the builtin of the same name is not available.
    list: Names | None = _names(
        (),
        "Names, or parts of names, of what is recorded, upper and lower case distinguished; at level mix a module's name "
        "includes all that runs in it.",
        ["Torch.relu.3.backward", "linear"],
    )
    data_mode: DataModes | None = _names(
        ("all",),
        "Directions and roles that are recorded; a kind that is not mentioned is recorded whole. all stands alone.",
        ["forward", "input"],
    )


class StatisticsSection(_Selecting):
    """Task statistics: maximum, minimum, mean and norm of every tensor."""

    tensor_list: Names | None = _names(
        (), "Names, or parts of names, of what is stored with its tensors too; levels L0, L1 and mix.", ["relu"]
    )
    summary_mode: SummaryMode = Field(
        default="statistics",
        description="statistics: four statistics; md5: a CRC-32 too; xor: an XOR checksum only (PyTorch). "
        "MindSpore static graphs also take a list of statistics.",
        examples=["md5"],
    )
    device: Device = Field(
        default="host", description="Where statistics are computed. MindSpore static graphs at O0/O1 only.", examples=["device"]
    )


class TensorSection(_Selecting):
    """Task tensor: the statistics and a file for every tensor."""

    summary_mode: SummaryMode = Field(default="statistics", description="As in section statistics, without the list.", examples=["md5"])
    bench_path: Path | None = Field(
        default=None,
        description="Dump directory of an earlier run; only tensors of calls that differ from it are stored. Compared by checksum where "
        "both have summary_mode md5, else by statistics, which see less. PyTorch only.",
        examples=["./bench_dump_path"],
    )
    diff_nums: DiffNums = Field(
        default=1, description="With bench_path: recording ends after so many differences, -1 for never. PyTorch only.", examples=[3]
    )
    file_format: FileFormat = Field(
        default="npy", description="Format of tensor files. MindSpore static graphs at level L2 only.", examples=["bin"]
    )


class AccCheckSection(_Model):
    """Task acc_check: runs each API once more in higher precision. PyTorch only."""

    white_list: Names | None = _names((), "APIs that are checked; empty means all.", ["conv1d", "conv2d"])
    black_list: Names | None = _names((), "APIs that are not checked.", ["conv1d", "conv2d"])
    error_data_path: Path = Field(
        default="./", description="Directory for the inputs and outputs of APIs that failed the check.", examples=["./"]
    )


class OverflowCheckSection(_Model):
    """Task overflow_check: overflow detection. MindSpore static graphs at level L2 only."""

    check_mode: CheckMode = Field(
        default="all", description="Kind of overflow: in the AI core, in atomic operations, or all.", examples=["all"]
    )


class NanCheckSection(_Selecting):
    """Task nan_check: looks for NaN and Inf while APIs run. PyTorch at level L1 only."""

    tensor_list: Names | None = _names(
        (), "Parts of names of the APIs whose values are saved in extra-info when they overflow, upper and lower case ignored.", ["truediv"]
    )


class EmptySection(_Model):
    """A task without settings of its own."""


class LoadSection(_Model):
    """Replaces inputs of modules by recorded ones. PyTorch only."""

    path: Path = Field(description="Dump directory, the one that holds step0, step1 and so on.", examples=["/home/data_dump_a"])
    modules: ModuleCalls = Field(
        description="Calls whose inputs are replaced: the names of their tensor files up to .input or .kwargs.",
        examples=[["Module.relu.ReLU.forward.0"]],
    )
    step: Ids | None = Field(default=(), description="Steps in which inputs are replaced; empty means all.", examples=[[0, "2-4"]])
    rank: Ids | None = Field(default=(), description="Ranks on which inputs are replaced; empty means all.", examples=[[0, "2-4"]])
    dump_after_load: StrictBool = Field(default=False, description="Whether to record after the replacement.", examples=[True])
    cast: StrictBool = Field(
        default=False,
        description="Whether a loaded tensor is converted to the dtype of the one it replaces; without it, it keeps its own and a warning "
        "tells. It always goes to the device of the one it replaces.",
        examples=[True],
    )
    source_step: SourceId | None = Field(
        default=None, description="The step of the dump that is loaded in every step; without it, the one that is running.", examples=[0]
    )
    source_rank: SourceId | None = Field(
        default=None, description="The rank of the dump that every rank loads; without it, each its own.", examples=[0]
    )


class ConfigFile(_Model):
    """Configuration of msprobe."""

    task: Task = Field(default="statistics", description="What is recorded.", examples=["tensor"])
    dump_path: StrictStr | None = Field(
        default=None,
        description="Directory of the dump; created when needed. Required, in the file or as an argument.",
        examples=["./dump_path"],
    )
    rank: Ids | None = Field(
        default=(),
        description="Ranks that record; empty means all. Leave empty when there is a single process. On MindSpore they count from 0 on "
        "every node.",
        examples=[[1, "4-6"]],
    )
    step: Ids | None = Field(default=(), description="Steps that are recorded; empty means all.", examples=[[0, 1, 2, "4-6"]])
    level: Level = Field(
        default="L1", description="L0: modules; L1: APIs; mix: both; L2: kernels; debug: only what is saved by hand.", examples=["L1"]
    )
    async_dump: StrictBool = Field(
        default=False,
        description="Keeps what was recorded in device memory and writes it at the end of the step. Tasks statistics and tensor; "
        "with tensor, list is required. Not with summary_mode md5. On MindSpore it changes nothing: a line says so.",
        examples=[True],
    )
    dump_enable: StrictBool | None = Field(
        default=None,
        description="When present, the file is read again while running, and this switches recording on and off. PyTorch only.",
        examples=[True],
    )
    extra_info: StrictBool = Field(default=True, description="Whether stack.json and construct.json are written.", examples=[False])
    precision: Precision = Field(
        default="low",
        description="Kept for compatibility: statistics are always accumulated in float64, both values give the same numbers.",
        examples=["high"],
    )
    risk_level: RiskLevel = Field(
        default="FOCUS",
        description="Levels L1 and mix: record all APIs of the watch list (support_wrap_ops.yaml), only the numerically risky ones of "
        "them (CORE), or all of them but those that only view, move, create or convert (FOCUS). null means ALL. PyTorch only.",
        examples=["CORE"],
    )
    ops_dir: Path | None = Field(
        default=None,
        description="Directory of your own with support_wrap_ops.yaml, custom_wrap_ops.yaml or builtin_ignore_ops.yaml, which hold over "
        "the packaged ones. Without it, the environment variable MSPROBE_OPS_DIR names it. PyTorch only.",
        examples=["./ops"],
    )
    statistics: StatisticsSection | None = Field(default=None, description="Settings of task statistics.", examples=[{"list": ["relu"]}])
    tensor: TensorSection | None = Field(default=None, description="Settings of task tensor.", examples=[{"list": ["relu"]}])
    acc_check: AccCheckSection | None = Field(
        default=None, description="Settings of task acc_check.", examples=[{"white_list": ["conv1d"]}]
    )
    overflow_check: OverflowCheckSection | None = Field(
        default=None, description="Settings of task overflow_check.", examples=[{"check_mode": "all"}]
    )
    nan_check: NanCheckSection | None = Field(default=None, description="Settings of task nan_check.", examples=[{"list": ["relu"]}])
    structure: EmptySection | None = Field(default=None, description="Task structure has no settings.", examples=[{}])
    exception_dump: EmptySection | None = Field(default=None, description="Task exception_dump has no settings.", examples=[{}])
    load: LoadSection | None = Field(
        default=None,
        description="Replaces inputs of modules by recorded ones. PyTorch only.",
        examples=[{"path": "/home/data_dump_a", "modules": ["Module.relu.ReLU.forward.0"]}],
    )


SECTIONS: dict[str, type[BaseModel]] = {
    "statistics": StatisticsSection,
    "tensor": TensorSection,
    "acc_check": AccCheckSection,
    "overflow_check": OverflowCheckSection,
    "nan_check": NanCheckSection,
    "structure": EmptySection,
    "exception_dump": EmptySection,
}
