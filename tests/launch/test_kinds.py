"""Scripts of many kinds, without and with `msprobe run`: the same output bit for bit, and the right models and steps in the dump."""

from __future__ import annotations

import shutil

import pytest

from launch import programs
from launch.runs import Runs

NET = ["first.Linear.0", "norm.BatchNorm1d.0", "last.Linear.0"]


def calls(times: int) -> list[str]:
    return [name.replace(".0", f".{number}") for number in range(times) for name in NET]


def test_a_plain_loop(runs: Runs) -> None:
    done = runs.both(programs.PLAIN)
    assert done.steps() == ["step0", "step1", "step2", "step3"]
    assert [done.calls(step) for step in range(4)] == [NET] * 4
    assert done.meta(3) == {"models": ["Net"], "step_on": "optimizer"}
    last = done.data(3)
    assert "Module.first.Linear.backward.0" in last and "Module.first.Linear.parameters_grad.0" in last
    assert "Functional.cross_entropy.0.forward" in last
    assert done.said == [
        f"recorded 4 steps (0-3): {done.dump}",
        "taken as model: Net",
        "a step began with the first call of a model and ended before the first call after an optimizer's step",
        "not taken as a model: CrossEntropyLoss (4 calls) (without parameters; their APIs are recorded like others)",
    ]


def test_only_the_selected_steps(runs: Runs) -> None:
    done = runs.both(programs.PLAIN, "--step", "1,2", "--level", "L0", "--task", "tensor")
    assert done.steps() == ["step1", "step2"]
    assert done.calls(1) == NET and not any(name.startswith("Functional") for name in done.data(1))
    assert list(done.dump.glob("step2/*/dump_tensor_data/Module.last.Linear.forward.0.output.0.pt"))
    assert done.said[0] == f"recorded 2 steps (1-2): {done.dump}"


def test_the_last_step_is_whole_where_the_script_ends_in_it(runs: Runs) -> None:
    done = runs.both(programs.PLAIN, "--task", "tensor", "--step", "3")
    assert list(done.dump.glob("step3/*/dump_tensor_data/Module.first.Linear.backward.0.*.pt"))
    assert "Tensor.add_.0.forward" in done.data(3) or any("add" in name for name in done.data(3))


def test_accumulated_gradients_are_one_step(runs: Runs) -> None:
    done = runs.both(programs.ACCUMULATION)
    assert [done.calls(step) for step in range(2)] == [calls(4)] * 2 and len(done.steps()) == 2


def test_a_gan_has_two_models_from_its_first_step_and_each_phase_is_a_step(runs: Runs) -> None:
    done = runs.both(programs.GAN)
    assert len(done.steps()) == 4
    assert done.calls(0) == done.calls(2) == ["0.up.Linear.0", "1.judge.Linear.0", "1.judge.Linear.1"]
    assert done.calls(1) == done.calls(3) == ["0.up.Linear.0", "1.judge.Linear.0"]
    assert "taken as models: Generator, Discriminator" in done.said


def test_a_backward_pass_through_the_phase_before_is_told_and_one_step_of_both_optimizers_records_it(runs: Runs) -> None:
    apart = runs.both(programs.GAN_WITH_DETACH)
    assert len(apart.steps()) == 6
    backward, gradients = "Module.0.up.Linear.backward.0", "Module.0.up.Linear.parameters_grad.0"
    assert not any(backward in apart.data(step) for step in range(6))
    (line,) = [line for line in apart.said if "backward pass" in line]
    late = sum(len(path.read_text().splitlines()) for path in apart.dump.glob("step*/*/dump_error_info.log"))
    assert line == (
        f"{late} calls of earlier steps had their backward pass after their step had ended, so their gradients are not in the dump "
        "(dump_error_info.log of each step names them): --step-on optimizer:2 makes one step of an iteration in which each of the 2 "
        "optimizers steps once"
    )
    shutil.rmtree(apart.dump)
    whole = runs.both(programs.GAN_WITH_DETACH, "--step-on", "optimizer:2")
    assert whole.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        assert whole.calls(step) == ["0.up.Linear.0", "1.judge.Linear.0", "1.judge.Linear.1", "1.judge.Linear.2"]
        assert {backward, gradients} <= whole.data(step).keys()
    assert whole.meta(2) == {"models": ["Generator", "Discriminator"], "step_on": "optimizer:2"}
    assert "a step began with the first call of a model and ended before the first call after 2 steps of optimizers" in whole.said
    assert not any("backward pass" in line for line in whole.said) and not list(whole.dump.glob("step*/*/dump_error_info.log"))


def test_the_order_of_the_optimizers_says_how_many_steps_make_one(runs: Runs) -> None:
    apart = runs.both(programs.WGAN)
    assert len(apart.steps()) == 7
    (line,) = [line for line in apart.said if "backward pass" in line]
    assert line.endswith(": --step-on optimizer:3 makes one step of an iteration in which the 2 optimizers step in the order 2, 2, 1")
    shutil.rmtree(apart.dump)
    whole = runs.both(programs.WGAN, "--step-on", "optimizer:3")
    assert whole.steps() == ["step0", "step1", "step2"]
    assert not any("backward pass" in line for line in whole.said)
    assert "steps of Adam" not in whole.err, "it was asked for"


def test_what_comes_after_the_last_selected_step_is_told_too(runs: Runs) -> None:
    done = runs.both(programs.GAN_WITH_DETACH, "--step", "0")
    assert done.steps() == ["step0"]
    assert any("had their backward pass after their step had ended" in line for line in done.said)


def test_a_step_inside_of_a_step_is_not_counted_twice(runs: Runs) -> None:
    done = runs.both(programs.STEPS_IN_STEPS, "--step-on", "optimizer:2")
    assert len(done.steps()) == 4
    assert [done.calls(step) for step in range(4)] == [calls(2)] * 4


@pytest.mark.slow
def test_a_compiled_step_of_an_optimizer_is_seen_and_not_compiled_again(runs: Runs) -> None:
    command = [*runs.client, runs.script(programs.COMPILED_OPTIMIZER)]
    without, done = runs.plain(*command), runs.recorded(*command, options=("--step", "11"))
    assert without.code == done.code == 0, done.err  # torch's own words on standard error carry the time
    assert without.out == done.out and done.steps() == ["step11"]


def test_the_calls_of_a_closure_are_one_step(runs: Runs) -> None:
    done = runs.both(programs.LBFGS)
    assert [done.calls(step) for step in range(2)] == [calls(3)] * 2 and len(done.steps()) == 2


def test_a_step_that_the_scaler_leaves_out_counts(runs: Runs) -> None:
    done = runs.both(programs.SCALER)
    assert [done.calls(step) for step in range(3)] == [NET] * 3 and len(done.steps()) == 3


def test_evaluation_between_steps_belongs_to_none(runs: Runs) -> None:
    done = runs.both(programs.EVALUATION)
    assert [done.calls(step) for step in range(4)] == [NET] * 4 and len(done.steps()) == 4
    assert "not recorded as a model: Net, 10 calls (in evaluation mode without gradients, between two training steps)" in done.said


def test_every_call_is_a_step_where_that_is_asked_for(runs: Runs) -> None:
    done = runs.both(programs.EVALUATION, "--step-on", "forward")
    assert len(done.steps()) == 14 and done.calls(13) == NET
    assert "every call of a model by the script was a step" in done.said


def test_what_no_optimizer_trains_is_told(runs: Runs) -> None:
    done = runs.both(programs.TEACHER)
    assert [done.calls(step) for step in range(3)] == [NET] * 3
    told = "3 calls (no optimizer trains it; --models all takes it, too)"
    assert {f"not recorded as a model: Teacher, {told}", f"not recorded as a model: AveragedModel(Net), {told}"} <= set(done.said)


def test_what_no_optimizer_trains_is_taken_where_that_is_asked_for(runs: Runs) -> None:
    done = runs.both(programs.TEACHER, "--models", "all")
    assert "taken as models: Net, AveragedModel(Net), Teacher (steps 2 to 3)" in done.said
    assert {"0.first.Linear.0", "1.module.first.Linear.0", "2.first.Linear.0"} <= set(done.calls(2))
    assert "the models are others: Module.0 is Net, Module.1 is AveragedModel(Net), Module.2 is Teacher" in done.err


def test_inference(runs: Runs) -> None:
    done = runs.both(programs.INFERENCE)
    assert [done.calls(step) for step in range(3)] == [NET] * 3 and len(done.steps()) == 3
    assert "Tensor.softmax.0.forward" in done.data(2)  # what is done with the result belongs to its step
    assert done.meta(0) == {"models": ["Net"], "step_on": "forward"}
    assert "no optimizer was made: every call of a model by the script was a step" in done.said


def test_several_calls_are_a_step(runs: Runs) -> None:
    done = runs.both(programs.INFERENCE, "--step-on", "forward:2")
    assert [done.calls(0), done.calls(1)] == [calls(2), NET] and len(done.steps()) == 2
    assert "every 2 calls of a model by the script were a step" in done.said


def test_a_loop_without_an_optimizer_of_torch(runs: Runs) -> None:
    done = runs.both(programs.BY_HAND)
    assert [done.calls(step) for step in range(2)] == [NET] * 2 and len(done.steps()) == 2
    assert "Module.first.Linear.parameters_grad.0" in done.data(1)


def test_a_model_that_is_called_by_its_parts(runs: Runs) -> None:
    done = runs.both(programs.PARTS)
    assert [done.calls(step) for step in range(2)] == [["encoder.Linear.0", "decoder.Linear.0"]] * 2
    assert "taken as model: Coder" in done.said


def test_a_call_by_parts_is_one_step(runs: Runs) -> None:
    done = runs.both(programs.PARTS, "--step-on", "forward")
    assert [done.calls(step) for step in range(2)] == [["encoder.Linear.0", "decoder.Linear.0"]] * 2 and len(done.steps()) == 2


def test_checkpointed_code_that_runs_again_begins_no_step(runs: Runs) -> None:
    done = runs.both(programs.CHECKPOINT, "--step-on", "forward")
    assert [done.calls(step) for step in range(2)] == [calls(2)] * 2 and len(done.steps()) == 2


def test_an_optimizer_of_something_else_than_a_model(runs: Runs) -> None:
    done = runs.both(programs.LATENT)
    assert [done.calls(step) for step in range(3)] == [NET] * 3 and len(done.steps()) == 3


def test_a_new_model_in_the_place_of_the_old_one(runs: Runs) -> None:
    done = runs.both(programs.FOLDS)
    assert [done.calls(step) for step in range(4)] == [NET] * 4


@pytest.mark.parametrize("step", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_compiled_models_run_eagerly_in_a_step_and_compiled_outside(step: str, runs: Runs) -> None:
    done = runs.both(programs.COMPILED, "--step", step)
    assert done.steps() == [f"step{step}"] and done.calls(int(step)) == NET
    assert "taken as model: Net" in done.said


@pytest.mark.slow
def test_a_compiled_loop_is_recorded_eagerly(runs: Runs) -> None:
    done = runs.both(programs.COMPILED.replace("print(torch._dynamo", "str(torch._dynamo"))  # nothing is compiled at all
    assert [done.calls(step) for step in range(4)] == [NET] * 4


def test_a_model_that_only_a_compiled_function_calls(runs: Runs) -> None:
    done = runs.both(programs.COMPILED_STEP, "--step", "0,2")  # the other two run compiled: `both` compares the number of graphs
    assert done.steps() == ["step0", "step2"] and [done.calls(step) for step in (0, 2)] == [NET] * 2
    assert "taken as model: Net" in done.said


def test_a_call_of_a_compiled_function_is_a_step_of_inference(runs: Runs) -> None:
    done = runs.both(programs.COMPILED_INFERENCE)
    assert [done.calls(step) for step in range(2)] == [calls(2)] * 2 and len(done.steps()) == 2


def test_a_model_that_cannot_be_found_in_a_compiled_function(runs: Runs) -> None:
    done = runs.both(programs.COMPILED_AND_HIDDEN)
    assert done.steps() == [] and "compiled functions are given and name: score (2 calls)" in done.said[0]


def test_workers_of_a_data_loader_record_nothing(runs: Runs) -> None:
    done = runs.both(programs.WORKERS)
    assert [done.calls(step) for step in range(4)] == [NET] * 4
    assert done.said[:2] == [f"recorded 4 steps (0-3): {done.dump}", "taken as model: Net"] and len(done.said) == 3


def test_forked_processes_that_train_are_recorded(runs: Runs) -> None:
    done = runs.both(programs.FORKED)
    places = sorted(path.name for path in done.dump.glob("step1/*"))
    assert len(places) == 2 and [done.calls(1, place) for place in places] == [NET] * 2
    assert done.said[0] == f"recorded 2 steps (0-1) in each of 2 processes: {done.dump}"


def test_processes_that_were_forked_when_recording_had_begun_record_too(runs: Runs) -> None:
    (runs.directory / "c.json").write_text('{"no_such_field": 1}')
    done = runs.both(programs.FORKED_LATER, "--config", "c.json", "--level", "mix")
    places = sorted(path.name for path in done.dump.glob("step1/*"))
    assert len(places) == 4 and [done.calls(1, place) for place in places] == [NET] * 4
    assert done.said[0] == f"recorded 2 steps (0-1) in each of 4 processes: {done.dump}"
    assert "already holds" not in done.err, "they are processes of one run"
    assert done.err.count("no_such_field") == 1  # what is to be said of the configuration is said once


def test_what_a_process_that_ends_at_once_has_recorded_is_named(runs: Runs) -> None:
    done = runs.both(programs.FORKED_AND_GONE)
    (line,) = [line for line in done.said if "was cut off" in line]
    assert "step 0 had ended by then; its files are valid" in line


def test_a_process_that_was_forked_inside_a_call_records_too(runs: Runs) -> None:
    done = runs.both(programs.FORKED_IN_A_CALL)
    assert [len(done.calls(0, path.name)) for path in done.dump.glob("step0/*")] == [3, 3]
    assert done.calls(1) == ["first.Linear.0"]  # of the child alone


@pytest.mark.parametrize("later", [0, 1])
def test_a_debugger_of_the_scripts_own_goes_before_us(later: int, runs: Runs) -> None:
    done = runs.both(programs.OWN.replace("LATER", str(later)))
    own = runs.directory / "own"
    assert sorted(path.name for path in own.iterdir()) == [f"step{number}" for number in range(3 - later)]
    assert done.steps() == ["step0"][:later]
    assert done.said == ["the script has a PrecisionDebugger of its own, which recorded as the script says (1 process)"]


def test_a_wrapped_model_and_its_rank(runs: Runs) -> None:
    done = runs.both(programs.RANK, "--level", "L0")
    assert [done.calls(step, "rank0") for step in range(2)] == [[f"module.{name}" for name in [*NET, "Net.0"]]] * 2
    assert "taken as model: DistributedDataParallel(Net)" in done.said


def test_a_rank_that_is_not_selected(runs: Runs) -> None:
    done = runs.both(programs.RANK, "--rank", "1", "--step", "1")
    assert done.steps() == []
    assert done.said == ['nothing was recorded: "rank" does not select rank 0']
