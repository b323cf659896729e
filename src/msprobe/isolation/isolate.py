"""The search: runs the script with golden inputs, judges, and halves where one run cannot decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msprobe.comparison.block import Line
from msprobe.comparison.headline import listed
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import isolation
from msprobe.isolation import child, words
from msprobe.isolation.child import Ended
from msprobe.isolation.differences import beyond_slight
from msprobe.isolation.events import Progress, progress
from msprobe.isolation.evidence import Evidence, gather, output_of
from msprobe.isolation.golden import Golden, open_golden
from msprobe.isolation.halving import at_most, smallest
from msprobe.isolation.plain_run import settle
from msprobe.isolation.record import Kind, Outcome, Record, Run, subject
from msprobe.isolation.suspects import Suspect, Verdict, over_ranks, place_of, short
from msprobe.isolation.verdict import judge, unfinished

_PLAN = "orders.json"
_LOG = "output.log"
_DUMP = "dump"


@dataclass(frozen=True)
class Options:
    """What the user chooses.

    Attributes:
        golden: root of a tensor dump of level L0 or mix.
        command: the program to run, and its arguments.
        output: where everything goes.
        step: the golden step to use; None: its first.
        halve: halve the list of calls even where one run decides.
        resume: go on with the search that lies in `output`.
        to_the_end: let the script go on after that step.
    """

    golden: Path
    command: Sequence[str]
    output: Path
    step: int | None = None
    halve: bool = False
    resume: bool = False
    to_the_end: bool = False


@dataclass(frozen=True)
class Result:
    """What the search found: one sentence, the list behind it, what the reader should know besides, and whether anything is wrong."""

    sentence: str
    verdict: Verdict
    found: bool
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=())


def isolate(options: Options, say: Callable[[Line], None]) -> Result:
    """Searches.

    Args:
        options: see Options.
        say: is given every line as it comes.

    Raises:
        UsageError: the golden dump is not fit for this, or the script does not record.
        DumpFormatError: a dump cannot be read.
        OSError: the results cannot be written.
    """
    if not options.command:
        raise UsageError("no command is given: msprobe isolate --golden DUMP -- python train.py ...")
    golden = open_golden(options.golden, options.step)
    if options.output.resolve().is_relative_to(golden.root.resolve()):
        raise UsageError(f"-o {options.output} lies in the golden dump, which is only read: give another directory")
    record = Record(options.output, subject(golden.fingerprint(), options.command), options.resume)
    if record.note:
        say(Line(record.note, "dim"))
    result = _Search(options, golden, record, say).result()
    record.finish(
        {
            "sentence": result.sentence,
            "found": result.found,
            "suspects": [_as_json(suspect) for suspect in result.verdict.suspects],
            "undecided": [asdict(item) for item in result.verdict.undecided],
            "not compared": list(result.verdict.unknown),
            "remarks": list(result.verdict.remarks),
            "notes": list(result.notes),
        }
    )
    return result


class _Search:
    def __init__(self, options: Options, golden: Golden, record: Record, say: Callable[[Line], None]) -> None:
        self.options, self.golden, self.record, self.say = options, golden, record, say
        self.count = golden.length
        self.limit = at_most(self.count)
        self.next = 0
        self.notes: list[str] = []
        self.files: list[Path] = []
        self.seen: dict[int, list[Evidence]] = {}

    def result(self) -> Result:
        """All of it."""
        run, all_given = self._run("everything", self.count, self._judge_everything)
        if run.outcome == "crashed":
            return self._after_crash(run, all_given)
        evidence = self._evidence(all_given, 1)
        verdict = over_ranks([(item.label, judge(item)) for item in evidence])
        if verdict.suspects and not self.options.halve:
            return self._finish(words.in_one_sentence(verdict), verdict, True)
        plain, nothing_given = self._run("plain", 0, self._judge_plain)
        if plain.outcome == "crashed":
            failed = f"with no input given the script fails ({_how(plain)}), with all of them it does not"
            return self._finish(words.in_one_sentence(verdict) or failed, verdict, True, failed)
        plain_evidence = self._evidence(nothing_given, 2)
        verdict, notes = settle(verdict, plain_evidence)
        self.notes += notes
        ends = _wrong_ends(plain_evidence)
        if not ends:
            return self._end_is_right(verdict, evidence, plain_evidence)
        if verdict.suspects and not self.options.halve:
            return self._finish(words.in_one_sentence(verdict), verdict, True)
        return self._halve(verdict, ends, all_given)

    # --- runs -----------------------------------------------------------------------------------------------------------------------
    def _run(
        self,
        kind: Kind,
        given: int,
        judged: Callable[[Progress], tuple[Outcome, str]],
        record: tuple[str, ...] = (),
    ) -> tuple[Run, Progress]:
        """Makes a run, or takes it from the record."""
        runs = self.record.runs
        if self.next < len(runs) and (runs[self.next].kind, runs[self.next].given) == (kind, given):
            run = runs[self.next]
            self.next += 1
            self._tell(run, " (kept)")
            code = 1 if run.outcome == "crashed" else 0
            return run, progress(self.record.place(run.number) / isolation.EVENTS, self.golden, Ended(code, run.last_words))
        del runs[self.next :]
        self.next += 1
        number, place = self.record.begin()
        orders = isolation.Orders(
            str(self.golden.root),
            str(place / _DUMP),
            str(place / isolation.EVENTS),
            self.golden.step,
            tuple(self.golden.ranks),
            self.golden.first(given) if given else {},
            record,
            self.options.to_the_end,
        )
        orders.write(place / _PLAN)
        self.say(Line(f"run {number}/{self.limit}: {_given(given, self.count)}", "dim"))
        ended = child.run(self.options.command, {isolation.VARIABLE: str(place / _PLAN)}, place / _LOG)
        if ended.unwritten:
            raise UsageError(f"the run left no complete record: {ended.unwritten}; make room, or give another directory with -o")
        done = progress(place / isolation.EVENTS, self.golden, ended)
        outcome: Outcome = "crashed"
        text = f"the script fails ({_how_ended(ended)})"
        if not done.failed:
            outcome, text = judged(done)
        run = Run(number, kind, given, outcome, ended.how, ended.last_words, text)
        self.record.add(run)
        self._tell(run)
        if ended.code and not done.failed:
            self.notes.append(f"run {number}: the script ended with {ended.how} after the step was recorded")
        return run, done

    def _tell(self, run: Run, mark: str = "") -> None:
        style = "bad" if run.outcome in ("wrong", "crashed") else ""
        self.say(Line(f"run {run.number}/{self.limit}{mark}: {_given(run.given, self.count)}: {run.text}", style))

    def _evidence(self, done: Progress, number: int) -> list[Evidence]:
        """What a run says of each rank; its CSV files are written once, also where the search was resumed."""
        if number not in self.seen:
            output = self.options.output / f"run{number}"
            found: list[Evidence] = []
            for label in sorted(done.directories):
                earlier = sorted(output.glob(f"isolate_{label}_*.csv"))
                evidence = gather(done.directories[label], self.golden.ranks[label], None if earlier else output)
                self.files.append(earlier[-1] if evidence.csv is None else evidence.csv)
                found.append(evidence)
            self.seen[number] = found
        return self.seen[number]

    def _judge_everything(self, done: Progress) -> tuple[Outcome, str]:
        verdict = over_ranks([(item.label, judge(item)) for item in self._evidence(done, len(self.record.runs) + 1)])
        if verdict.suspects:
            return "recorded", f"{len(verdict.suspects)} thing{'s' if len(verdict.suspects) > 1 else ''} wrong"
        if verdict.undecided:
            count = len(verdict.undecided)
            return "recorded", f"{count} difference{'s' if count > 1 else ''} that this run alone cannot judge"
        return "recorded", "every module gives right outputs, and what arrives at it is right"

    def _judge_plain(self, done: Progress) -> tuple[Outcome, str]:
        ends = _wrong_ends(self._evidence(done, len(self.record.runs) + 1))
        if not ends:
            return "right", "what the last module gives out is right"
        return "wrong", f"what the last module gives out is wrong ({next(iter(ends.values()))})"

    # --- conclusions ----------------------------------------------------------------------------------------------------------------
    def _end_is_right(self, verdict: Verdict, evidence: Sequence[Evidence], plain: Sequence[Evidence]) -> Result:
        if verdict.suspects:
            self.notes.append("a run with nothing given ends right all the same")
            return self._finish(words.in_one_sentence(verdict), verdict, True)
        # What differs in one of the two runs only is drift (in the plain one), or follows from the replacement (in the other).
        backward = next((one.backward for one, other in zip(evidence, plain, strict=True) if one.backward and other.backward), "")
        if backward:
            return self._finish(f"every forward call is right, and gradients are not: {backward}", verdict, True)
        if verdict.undecided:
            what = (
                f"the end of a plain run is right, and so is every module on golden inputs; {len(verdict.undecided)} differences in between"
            )
            return self._finish(f"{what} could not be judged", verdict, True)
        if verdict.unknown:
            count = len(verdict.unknown)
            values = "1 value" if count == 1 else f"{count} values"
            return self._finish(f"nothing is wrong in what could be compared; {values} could not be", verdict, True)
        if not all(item.has_backward for item in evidence):
            self.notes.append("there is no backward pass to compare: code behind the last module, such as a loss, is not judged")
        drifted = any(facts.outputs for item in plain for facts in item.calls)
        if drifted:
            self.notes.append("in a run with nothing given, values drift apart by no more than rounding adds up to")
        buffers = {name: own for item in evidence for name, own in item.buffers.items()}
        return self._finish(words.nothing_wrong(buffers), verdict, False)

    def _halve(self, verdict: Verdict, ends: dict[str, str], all_given: Progress) -> Result:
        still = self._wrong_now(all_given, ends)
        if still:
            behind = f"with all inputs given {short(still)} is still wrong: the fault lies behind the last module call"
            sentence = words.in_one_sentence(verdict) or behind
            self.notes.append("there is nothing to halve: even with all inputs given the end is wrong")
            return self._finish(sentence, verdict, True)
        calls = self._longest()

        def right(count: int) -> bool:
            def judged(done: Progress) -> tuple[Outcome, str]:
                if self._wrong_now(done, ends):
                    return "wrong", f"wrong after it -> the fault lies behind {short(calls[count - 1])}"
                return "right", f"right after it -> the fault lies before the input of {short(calls[count - 1])}"

            return self._run("first", count, judged, tuple(sorted(ends)))[0].outcome == "right"

        first_right = smallest(self.count, right)
        here = short(calls[first_right - 1])
        if first_right == 1:
            where = f"before {here}, the first call, or {here} changes its input in place"
        else:
            before = short(calls[first_right - 2])
            where = f"behind the input of {before}: in it, in the code from there to {here}, or {here} changes its input in place"
        changed = self._changed_in_place(all_given, calls[first_right - 1])
        if changed:
            where = f"in {here}: it changes its {changed} in place, and the code after it goes on with that"
        halved = (
            f"halving: the fault lies {where} (with the inputs of the first {first_right} calls given the end is right, with fewer wrong)"
        )
        if verdict.suspects:
            self.notes.append(halved)
        return self._finish(words.in_one_sentence(verdict) or halved, verdict, True)

    def _after_crash(self, run: Run, done: Progress) -> Result:
        verdict, inside = self._judged_so_far(done, self.count)
        if other := _other_model(verdict):
            self.files.append(self.options.output / f"run{run.number}" / _LOG)
            return self._finish(other, verdict, True, f"the script fails with its inputs ({_how(run)})")
        plain, _ = self._run("plain", 0, self._judge_plain)
        where = f", inside {inside}" if inside else ""
        self.files.append(self.options.output / f"run{run.number}" / _LOG)
        if plain.outcome == "crashed":
            failed = f"the script fails whether inputs are given or not{where} ({_how(plain)})"
            if verdict.suspects:
                self.notes.append(failed)
            return self._finish(words.in_one_sentence(verdict) or failed, verdict, True)
        if verdict.suspects and not self.options.halve:
            self.notes.append(
                f"with all inputs given the script fails{where} ({_how(run)}), without any it does not: what would have come after that is "
                "not judged; --halve searches for the input at which it fails"
            )
            return self._finish(words.in_one_sentence(verdict), verdict, True)
        kept: dict[int, Progress] = {}

        def fails(count: int) -> bool:
            made, kept[count] = self._run("first", count, lambda _: ("recorded", "the script does not fail"))
            return made.outcome == "crashed"

        first_failing = smallest(self.count, fails)
        if not verdict.suspects and first_failing - 1 in kept:
            verdict, _ = self._judged_so_far(kept[first_failing - 1], first_failing - 1)
        guilty = short(self._longest()[first_failing - 1])
        sentence = (
            f"the script fails ({_how(run)}) when {guilty} gets its golden inputs; with those of the {first_failing - 1} calls before it "
            "given it does not"
        )
        if verdict.suspects:
            self.notes.append(sentence)
        return self._finish(words.in_one_sentence(verdict) or sentence, verdict, True)

    def _judged_so_far(self, done: Progress, given: int) -> tuple[Verdict, str]:
        """What a run that failed, or in which only some inputs were given, says of the calls that had theirs; and where it failed."""
        verdicts: list[tuple[str, Verdict]] = []
        inside = ""
        for label, directory in done.directories.items():
            try:
                evidence = gather(directory, self.golden.ranks[label])
            except (DumpFormatError, UsageError):
                continue  # it failed before there was anything
            verdict = judge(evidence, whole=False)
            inside = inside or next((short(name) for name in reversed(unfinished(evidence))), "")
            had = set(map(place_of, self.golden.ranks[label].calls[:given]))
            verdicts.append((label, Verdict(tuple(suspect for suspect in verdict.suspects if place_of(suspect.call) in had))))
        return over_ranks(verdicts), inside

    def _wrong_now(self, done: Progress, ends: dict[str, str]) -> str:
        """The first of the watched calls that is still wrong, or was not made; "" when all are right."""
        for label, directory in done.directories.items():
            made = set(map(place_of, self.golden.ranks[label].calls))
            for name in ends:
                if place_of(name) in made and output_of(directory, self.golden.ranks[label], name) != ():
                    return name
        return ""

    def _changed_in_place(self, done: Progress, call: str) -> str:
        """The inputs that a call changed, "" where it left them as they were."""
        changed = [key for item in self._evidence(done, 1) for facts in item.calls if facts.name == call for key in facts.mutated]
        return listed(list(dict.fromkeys(changed)))

    def _longest(self) -> tuple[str, ...]:
        return max((rank.calls for rank in self.golden.ranks.values()), key=len)

    def _finish(self, sentence: str, verdict: Verdict, found: bool, *notes: str) -> Result:
        return Result(sentence, verdict, found, (*dict.fromkeys(self.notes), *notes), tuple(dict.fromkeys(self.files)))


def _wrong_ends(evidence: Sequence[Evidence]) -> dict[str, str]:
    """Of every rank the last outermost call that is wrong by more than rounding adds up to, and how."""
    found: dict[str, str] = {}
    for item in evidence:
        for facts in reversed(item.calls):
            wrong = beyond_slight(facts.outputs) if facts.parent is None else ()
            if wrong:
                found[facts.name] = f"{facts.name}, {wrong[0].key}: {wrong[0].how}"
                break
    return found


def _other_model(verdict: Verdict) -> str:
    """What to say where parameters have other shapes than in the golden run, and so the script failed with its inputs."""
    wrong = [suspect for suspect in verdict.suspects if suspect.kind == "parameter"]
    for suspect in wrong:
        for difference in suspect.differences:
            if difference.how.startswith("shape "):
                return f"the golden dump is of another model: {difference.key} of {short(suspect.call)} has {difference.how}"
    return ""


def _given(count: int, of: int) -> str:
    if count == 0:
        return "no inputs given (a plain run)"
    return f"inputs of all {of} module calls given" if count == of else f"inputs of the first {count} of {of} module calls given"


def _how(run: Run) -> str:
    return f"{run.how}: {run.last_words}" if run.last_words else run.how


def _how_ended(ended: Ended) -> str:
    return f"{ended.how}: {ended.last_words}" if ended.last_words else ended.how


def _as_json(suspect: Suspect) -> dict[str, Any]:
    """A suspect as JSON, with its sentence."""
    content = asdict(suspect)
    for name in ("frame", "frame_before"):
        frame = getattr(suspect, name)
        content[name] = str(frame) if frame is not None else None
    return {"sentence": words.sentence(suspect), "place": words.place(suspect), **content}
