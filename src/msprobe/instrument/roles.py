"""Which names of a script are models, which are optimizers: from what is assigned to them and what is done with them."""

from __future__ import annotations

import re

import libcst as cst

from msprobe.instrument.tree import Tree, dotted, names_in_target, root_of

_MODEL_NAME = re.compile(
    r"_?(?:[a-zA-Z0-9]+_)*(?:model|net|network|generator|discriminator|backbone|policy|actor|critic|unet|resnet|vae|student|teacher|engine|classifier)"
    r"(?:_?\d+|_[a-z])?|net[A-Z]\w{0,3}|[a-z]\w*(?:Net|Model)"
)
_VERB = re.compile(
    r"_*(?:add|apply|attach|build|call|check|compile|configure|construct|convert|count|create|define|disable|download|enable|eval|evaluate|export|"
    r"find|fit|freeze|get|has|init|initialize|is|load|log|make|move|new|on|plot|prepare|print|push|register|remove|replace|restore|run|save|set|"
    r"setup|show|sync|test|train|unwrap|update|upload|validate|wrap)(?:_|(?=[A-Z]))"
)
"""`build_model(...)` makes one; it is none."""
_CLASS_NAME = re.compile(
    r"[A-Z]\w*(?:Model|Net|Network|Module|Transformer|Generator|Discriminator|GPT\d*|Bert|BERT|UNet|VAE|MLP|CNN|Autoencoder|AutoEncoder|For[A-Z]\w+|"
    r"Classifier|Llama|ViT|LSTM|RNN|GRU)|GPT\d*|MLP|CNN|VAE|ViT|ResNet\w*|LSTM|RNN|GRU|Transformer\w*|Net\w*"
)
_NO_MODEL = re.compile(
    r".*(?:Tokenizer|Processor|Config|FeatureExtractor|Scheduler|Pipeline|Dataset|Loader|Collator|Arguments|Trainer|Logger|Metric|Loss)\w*"
)
_OPTIMIZER_CLASS = re.compile(r"\w*(?:Adam\w*|SGD|LBFGS|Adagrad|Adadelta|RMSprop|Rprop|Lion|Adafactor|Muon|Optimizer)")
_OPTIMIZER_NAME = re.compile(r"(?:.*_)?(?:opt|optim|optimizer|optimiser)s?(?:izer)?(?:_?[A-Za-z0-9]+)?|.*[oO]ptimi[sz]er\w*", re.IGNORECASE)
_OPTIMIZER_MAKER = re.compile(r"(?:create|build|get|make|configure|setup|init)_\w*optim\w*")
_WRAPPERS = frozenset(
    [
        "DataParallel", "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "get_peft_model", "create_model",
        "prepare_model_for_kbit_training", "convert_sync_batchnorm",
    ]
)  # fmt: skip
_FULL_WRAPPERS = frozenset(
    ["torch.compile", "torch.jit.script", "torch.jit.trace", "torch.jit.load", "torch.hub.load", "timm.create_model"]
)
_SAME_MODULE = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "npu",
        "half",
        "float",
        "double",
        "bfloat16",
        "eval",
        "train",
        "requires_grad_",
        "type",
        "apply",
        "from_pretrained",
        "to_empty",
    ]
)
"""Methods of a module that give the module itself (`from_pretrained` gives one too)."""
_ADMINISTRATION = frozenset(["parameters", "named_parameters", "modules", "named_modules", "named_children"])
_FORWARD_METHOD = re.compile(
    r"(?:forward|generate|encode|decode|predict|sample|compute_loss|training_step|train_batch|embed)\w*|get_\w+_features|module"
)
_NO_MODULES = frozenset(["Parameter", "ParameterList", "ParameterDict", "UninitializedParameter", "Buffer"])


class Roles:
    """What the names stand for. A name is text such as `model` or `self.net`, the same in the whole file."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.imports = _imports(tree)
        self.classes = {node.name.value: node for node in tree.nodes if isinstance(node, cst.ClassDef)}
        self.functions = {node.name.value: node for node in tree.nodes if isinstance(node, cst.FunctionDef)}
        self.module_classes = frozenset(name for name in self.classes if self._base(name, _is_module_base))
        self.lightning_classes = frozenset(name for name in self.classes if self._base(name, lambda full: full.endswith("LightningModule")))
        self.trainer_classes = frozenset(name for name in self.classes if self._base(name, self._is_hf_trainer))
        self.models: dict[str, str] = {}
        """Name -> what makes us think so."""
        self.optimized: set[str] = set()
        """Models whose parameters are given to something: an optimizer, most probably."""
        self.optimizers: set[str] = set()
        self.others: set[str] = set()
        """Names that stand for something else, whatever they are called."""
        self.pipelines: set[str] = set()
        """Pipelines of transformers: what is called; the model is inside."""
        self._returning: set[str] = set()
        calls = [node for node in tree.nodes if isinstance(node, cst.Call)]
        self._assignments = [node for node in tree.nodes if isinstance(node, cst.Assign | cst.AnnAssign | cst.NamedExpr | cst.Return)]
        for _ in range(3):  # a name may be given on: model -> net -> self.net
            self._read_assignments()
        self._read_use(calls)
        self._read_arguments(calls)
        self._read_assignments()

    def full(self, name: str | None) -> str:
        """A dotted name with what was imported in the place of its alias: `nn.Linear` -> `torch.nn.Linear`."""
        if name is None:
            return ""
        head, dot, rest = name.partition(".")
        return self.imports.get(head, head) + dot + rest

    def model_of(self, call: cst.Call) -> str | None:
        """The model that a call runs, or None where it is no such call."""
        name = dotted(call.func)
        if name is None:
            return None
        if name in self.pipelines:
            return f"{name}.model"
        if self.is_model(name):
            return name
        base, _, method = name.rpartition(".")
        if base and _FORWARD_METHOD.fullmatch(method) and self.is_model(base):
            return base
        return None

    def is_model(self, name: str) -> bool:
        """By what is known of the name; else by the name itself."""
        if name in self.models:
            return True
        last = name.rpartition(".")[2]
        if name in self.others or last in self.functions or name in self.classes or name in self.optimizers:
            return False
        if root_of(name) in self.imports and (root_of(name) != name or not name.islower()):
            return False  # models.resnet(...); an object that was imported by its name may well be a model
        return _MODEL_NAME.fullmatch(last) is not None and _VERB.match(last) is None

    def is_optimizer_step(self, call: cst.Call) -> bool:
        """`optimizer.step()`, `scaler.step(optimizer)`, `engine.step()` of DeepSpeed."""
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "step":
            return False
        receiver = dotted(call.func.value) or self._tree.code(call.func.value)
        if call.args and (dotted(call.args[0].value) in self.optimizers or self._named_optimizer(dotted(call.args[0].value))):
            return True
        return receiver in self.optimizers or self._named_optimizer(receiver) or receiver in self.engines

    @property
    def engines(self) -> set[str]:
        """Models whose `backward` is called: engines of DeepSpeed."""
        return {name for name, why in self.models.items() if why == "deepspeed"}

    def is_backward(self, call: cst.Call) -> bool:
        """`loss.backward()`, `accelerator.backward(loss)`, `torch.autograd.backward(...)`."""
        return isinstance(call.func, cst.Attribute) and call.func.attr.value in ("backward", "manual_backward")

    def is_model_value(self, node: cst.BaseExpression) -> bool:
        """Whether an expression gives a model."""
        if isinstance(node, cst.IfExp):
            return self.is_model_value(node.body) or self.is_model_value(node.orelse)
        if not isinstance(node, cst.Call):
            name = dotted(node)
            return name is not None and name in self.models
        name = dotted(node.func)
        if name is None:
            return (
                isinstance(node.func, cst.Attribute)
                and node.func.attr.value in _SAME_MODULE
                and (self.is_model_value(node.func.value) or (node.func.attr.value == "eval" and not node.args))
            )
        full, last = self.full(name), name.rpartition(".")[2]
        base = name.rpartition(".")[0]
        if base and last in _SAME_MODULE and last != "from_pretrained" and self.is_model(base):
            return True
        if full == "copy.deepcopy" or last == "deepcopy":
            return bool(node.args) and self.is_model_value(node.args[0].value)
        if last in _WRAPPERS or full in _FULL_WRAPPERS or full.startswith("torchvision.models."):
            return True
        if full.startswith("torch.nn.") and "functional" not in full and ".init" not in full:
            return last[:1].isupper() and not last.endswith("Loss") and last not in _NO_MODULES
        if last in ("from_pretrained", "from_config"):
            return _NO_MODEL.fullmatch(base.rpartition(".")[2]) is None
        if last in self.module_classes | self.lightning_classes:
            return True
        if name in self._returning:
            return True
        return (
            name.partition(".")[0] in self.imports
            and last[:1].isupper()
            and not full.startswith("torch.")
            and last not in self.classes
            and _CLASS_NAME.fullmatch(last) is not None
            and _NO_MODEL.fullmatch(last) is None
        )

    def _is_optimizer_value(self, node: cst.BaseExpression) -> bool:
        if not isinstance(node, cst.Call):
            return dotted(node) in self.optimizers
        name = dotted(node.func) or ""
        full, last = self.full(name), name.rpartition(".")[2]
        if "lr_scheduler" in full or "Scheduler" in last:
            return False
        if full.startswith("torch.optim."):
            return last[:1].isupper()
        return _OPTIMIZER_CLASS.fullmatch(last) is not None or _OPTIMIZER_MAKER.fullmatch(last) is not None

    def _named_optimizer(self, name: str | None) -> bool:
        if name is None or name in self.models:
            return False
        last = re.split(r"[.\[]", name)[-1] if not name.endswith("]") else re.split(r"\[", name)[0].rpartition(".")[2]
        return _OPTIMIZER_NAME.fullmatch(last) is not None and "sched" not in last.lower()

    def _read_assignments(self) -> None:
        for node in self._assignments:
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    self._bind(target.target, node.value)
            elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, cst.Return) and node.value is not None:
                function = self._tree.function_of(node)
                if function is not None and self.is_model_value(node.value):
                    self._returning.add(function.name.value)

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        name = dotted(target)
        if name is not None:
            if self.is_model_value(value):
                self.models.setdefault(name, "assigned")
            elif self._is_optimizer_value(value):
                self.optimizers.add(name)
            elif isinstance(value, cst.Call) and self.full(dotted(value.func)) == "transformers.pipeline":
                self.pipelines.add(name)
            elif self._is_something_else(value):
                self.others.add(name)
            return
        names = list(names_in_target(target))
        if isinstance(value, cst.Tuple) and len(value.elements) == len(names):
            for one, element in zip(names, value.elements, strict=True):
                if self.is_model_value(element.value):
                    self.models.setdefault(one, "assigned")
                elif self._is_optimizer_value(element.value):
                    self.optimizers.add(one)
        elif isinstance(value, cst.Call):
            self._unpack(names, value)

    def _unpack(self, names: list[str], call: cst.Call) -> None:
        """`model, optimizer, loader = accelerator.prepare(model, optimizer, loader)` and its like."""
        name = dotted(call.func) or ""
        last = name.rpartition(".")[2]
        if last == "initialize" and self.full(name).startswith("deepspeed") and names:
            self.models[names[0]] = "deepspeed"
            self.optimizers |= set(names[1:2]) - {"_"}
        elif last in ("prepare", "setup"):
            for one, argument in zip(names, call.args, strict=False):
                if self.is_model_value(argument.value):
                    self.models.setdefault(one, "assigned")
                elif self._is_optimizer_value(argument.value):
                    self.optimizers.add(one)

    def _is_something_else(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.SimpleString | cst.Integer | cst.Float | cst.FormattedString | cst.Dict | cst.Lambda | cst.Comparison):
            return True
        if not isinstance(value, cst.Call):
            return False
        name = dotted(value.func) or ""
        owner = re.sub(r"\.from_\w+$", "", name).rpartition(".")[2]
        if self.full(name).startswith("torch.nn.") and owner.endswith("Loss"):
            return True
        return _NO_MODEL.fullmatch(owner) is not None or self.full(name) in ("torch.load", "json.load", "open")

    def _read_use(self, calls: list[cst.Call]) -> None:
        for call in calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in _ADMINISTRATION:
                name = dotted(call.func.value)
                if name is not None and name != "self" and name not in self.others:
                    self.models.setdefault(name, "parameters")
                    if call.func.attr.value in ("parameters", "named_parameters"):
                        self.optimized.add(name)
        switched = {
            name
            for call in calls
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("eval", "train")
            for name in [dotted(call.func.value)]
            if name is not None
        }
        called = {dotted(call.func) for call in calls}
        for name in switched & {one for one in called if one is not None}:
            if name not in self.others and name not in self.functions and name not in self.classes:
                self.models.setdefault(name, "switched")

    def _read_arguments(self, calls: list[cst.Call]) -> None:
        """What a function of this file is given is a model in it too."""
        for call in calls:
            name = dotted(call.func)
            function = self.functions.get(name.rpartition(".")[2]) if name else None
            if function is None:
                continue
            for parameter, value in bound_arguments(function, call, method="." in (name or "")).items():
                if self.is_model_value(value):
                    self.models.setdefault(parameter, "argument")
                elif self._is_optimizer_value(value):
                    self.optimizers.add(parameter)

    def _base(self, name: str, wanted: object, seen: frozenset[str] = frozenset()) -> bool:
        assert callable(wanted)
        for base in self.classes[name].bases:
            full = self.full(dotted(base.value))
            if wanted(full):
                return True
            if full in self.classes and full not in seen | {name} and self._base(full, wanted, seen | {name}):
                return True
        return False

    def _is_hf_trainer(self, full: str) -> bool:
        return full.endswith("Trainer") and full.partition(".")[0] in ("transformers", "trl", "sentence_transformers", "setfit", "peft")


def _is_module_base(full: str) -> bool:
    last = full.rpartition(".")[2]
    return last in ("Module", "Sequential", "PreTrainedModel", "ModelMixin") or (
        last.endswith(("PreTrainedModel", "Module")) and last != "LightningModule"
    )


def bound_arguments(function: cst.FunctionDef, call: cst.Call, method: bool) -> dict[str, cst.BaseExpression]:
    """Parameter -> expression of a call, as far as it can be told; `method`: the first parameter is not among the arguments."""
    names = [parameter.name.value for parameter in (*function.params.posonly_params, *function.params.params)]
    if method and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    found: dict[str, cst.BaseExpression] = {}
    for number, argument in enumerate(call.args):
        if argument.star:
            break
        if argument.keyword is not None:
            found[argument.keyword.value] = argument.value
        elif number < len(names):
            found[names[number]] = argument.value
    return found


def _imports(tree: Tree) -> dict[str, str]:
    """Name in the file -> full dotted name of what was imported."""
    found: dict[str, str] = {}
    for node in tree.nodes:
        if isinstance(node, cst.Import):
            for alias in node.names:
                full = dotted(alias.name) or ""
                if alias.asname is not None:
                    found[dotted(alias.asname.name) or ""] = full
                else:
                    found[full.partition(".")[0]] = full.partition(".")[0]
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            origin = "." * len(node.relative) + (dotted(node.module) or "")
            for alias in node.names:
                name = dotted(alias.name) or ""
                found[dotted(alias.asname.name) or name if alias.asname is not None else name] = f"{origin}.{name}"
    return found
