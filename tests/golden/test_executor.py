"""Programs of whole blocks against `golden.integer.block`, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.lower.shape import BlockShape
from disc.program import Attend, MaskMode, Mlp, Project
from disc.program.access import ListState
from disc.program.check import check
from golden.executor import Memory, execute, random_order
from golden.executor.block import step_kind
from golden.executor.machine import step
from golden.executor.random_blocks import FORMATS, SIX, TINY, WIDE, Case, draw_rows, steps
from golden.integer.block import Sparsity, block

SMALL = {
    TINY: BlockShape(tokens=80, width=40, heads=2, hidden=96),
    SIX: BlockShape(tokens=50, width=36, heads=2, hidden=70),
    WIDE: BlockShape(tokens=30, width=48, heads=2, hidden=100),
    FORMATS: BlockShape(tokens=40, width=30, heads=2, hidden=60),
}


def run(case: Case, *, hot: bool, seed: int, orders: int = 1, count: int = 8) -> None:
    rng = np.random.default_rng(seed)
    config, n = case.plan.config, case.plan.shape.tokens
    for name, sparsity, fraction in steps(n, case.plan.hash, hot=hot)[:count]:
        tokens = draw_rows(n, fraction, rng)
        program = case.lowered(sparsity, tokens)
        image = case.image(tokens)
        check(program, config, image.data)
        out = execute(program, config, image.data)
        result = block(
            case.x[tokens],
            tokens,
            case.constants,
            case.vectors,
            case.state,
            sparsity,
            config.number,
        )
        assert len(np.unique(result.x)) > 100, "results spread"
        try:
            case.require(out, result.x, tokens)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        for _ in range(orders):
            order = random_order(program.commands, rng)
            assert order != sorted(order)
            assert np.array_equal(execute(program, config, image.data, order=order), out), name


@pytest.mark.parametrize("hot", [False, True], ids=["all columns", "hot columns"])
@pytest.mark.parametrize("config", SMALL, ids=lambda c: c.name)
def test_random_blocks(config: CoreConfig, hot: bool) -> None:
    case = Case.random(config, SMALL[config], seed=7, hot=hot)
    run(case, hot=hot, seed=11)
    masks, kept = case.state.mask.mean(), np.abs(case.state.residual).max()
    assert 0.02 < masks < 0.8
    assert kept > 0
    if hot:
        assert 0.2 < case.state.hot.mean() < 0.8


def test_tiles_have_edges() -> None:
    """The small blocks are cut into several tiles of every sort, with incomplete ones."""
    shape = SMALL[SIX]
    case = Case.random(SIX, shape, seed=1, hot=True)
    commands = case.lowered(Sparsity(), np.arange(50)).commands
    for kind, fields in ((Project, 3), (Mlp, 3), (Attend, 3)):
        chosen = [c for c in commands if isinstance(c, kind)]
        rows, columns = ({getattr(c, f) for c in chosen} for f in ("rows", "columns"))
        assert len(rows) > 1, (kind, rows)
        assert any(n % SIX.array.banks for n in columns), (kind, columns)
        assert len(chosen) >= fields
    assert {(c.first, c.last) for c in commands if isinstance(c, Mlp)} == {(1, 0), (0, 0), (0, 1)}
    assert shape.width % SIX.array.lanes == 0
    assert SMALL[TINY].width % TINY.array.lanes == 0
    assert SMALL[TINY].head_dim % TINY.array.lanes != 0, "a last word that is not full"


def test_one_program_serves_shorter_lists() -> None:
    case = Case.random(SIX, SMALL[SIX], seed=3, hot=True)
    program = case.lowered(Sparsity(), np.arange(50))
    rng = np.random.default_rng(0)
    for count in (0, 1, 17, 50):
        tokens = np.sort(rng.permutation(50)[:count])
        image = case.image(tokens)
        check(program, SIX, image.data)
        out = execute(program, SIX, image.data, order=random_order(program.commands, rng))
        state = case.state
        x = case.x[tokens]
        if count:
            x = block(x, tokens, case.constants, case.vectors, state, Sparsity(), SIX.number).x
        else:
            state.hot = np.zeros(70, bool)
        case.require(out, x, tokens)


def test_commands_touch_no_more_than_they_declare() -> None:
    case = Case.random(WIDE, SMALL[WIDE], seed=5, hot=True)
    rng = np.random.default_rng(2)
    for _, sparsity, fraction in steps(30, case.plan.hash, hot=True):
        tokens = draw_rows(30, fraction, rng)
        program, image = case.lowered(sparsity, tokens), case.image(tokens)
        memory = Memory(WIDE, program.bank_hash(WIDE), image.data)
        lists = ListState()
        for index, command in enumerate(program.commands):
            accesses = command.accesses(WIDE, lists.windows)
            held = memory._lists[command.values()["list"]] if "list" in command.values() else None
            with memory.record():
                step(command, memory, index)
            command.follow(lists)
            declared: dict = {}
            for access in accesses:
                where = access.indices(held)
                units = np.r_[where] if isinstance(where, slice) else where
                declared.setdefault((access.space, access.write), set()).update(units.tolist())
            for key, touched in memory.touched.items():
                assert touched <= declared.get(key, set()), (index, command.NAME, key)
            # All declared DRAM writes are made, so that nothing is thought defined that is not.
            for key, units in declared.items():
                if key[1] and key[0].name == "DRAM":
                    assert units == memory.touched[key], (index, command.NAME)


@pytest.mark.parametrize("layer", [2])
def test_a_block_of_the_trained_model(layer: int) -> None:
    """256 tokens of digits-256: dense, CTR, ST, both, hot columns; scales from calibration."""
    import torch

    from disc.lower.plan import BlockPlan
    from golden.integer.block import BlockState
    from golden.integer.calibration import load_calibration
    from golden.integer.lowering import Lowering
    from golden.integer.quantise import quantise
    from golden.model.checkpoint import load_checkpoint

    model = load_checkpoint("digits-256")
    lowering = Lowering(model, load_calibration("digits-256"), TINY.number, hot_tau=1.0)
    torch.manual_seed(0)
    t, y = torch.tensor([400.0]), torch.tensor([3])
    c = model.config
    shape = BlockShape(c.tokens, c.dim, c.heads, 4 * c.dim)
    embedding = model.embed(0.7 * torch.randn(1, 1, c.size_px, c.size_px))[0].detach().numpy()
    group = lowering.calibration.group(400.0)
    case = Case(
        BlockPlan(TINY, shape),
        lowering.constants[group].blocks[layer],
        lowering.vectors(t, y).blocks[layer],
        BlockState.empty(c.heads, c.tokens, c.head_dim),
        quantise(embedding, float(lowering.calibration.residual), TINY.number.residual_bits),
    )
    run(case, hot=True, seed=5, orders=1, count=5)
    assert 0.005 < case.state.mask.mean() < 0.7
    assert 0.01 < case.state.hot.mean() < 0.99


def test_what_is_not_in_the_core() -> None:
    case = Case.random(SIX, SMALL[SIX], seed=1)
    with pytest.raises(ValueError, match="one_mask: programs make a mask for each head"):
        step_kind(case.constants, Sparsity(mode=MaskMode.GENERATE, one_mask=True), 4)


def test_executor_names_the_command_and_what_is_wrong() -> None:
    case = Case.random(SIX, SMALL[SIX], seed=1)
    tokens = np.arange(50)
    program, image = case.lowered(Sparsity(), tokens), case.image(tokens)
    with pytest.raises(ValueError, match=r"command 1 \(load_constants\): touches DRAM bytes"):
        execute(program, SIX, image.data[: image.data.size // 8], order=[1])
    index = next(i for i, c in enumerate(program.commands) if isinstance(c, Project))
    with pytest.raises(ValueError, match=rf"command {index} \(project\): reads LIST list 0, which"):
        execute(program, SIX, image.data, order=[index])
    image.put_list(case.plan.shared.rows, [3, 50])
    with pytest.raises(ValueError, match="tokens: list names token 50, allowed below 50"):
        execute(program, SIX, image.data)
    image.put_list(case.plan.shared.rows, [3, 3])
    with pytest.raises(ValueError, match="list: names a token twice"):
        execute(program, SIX, image.data)
