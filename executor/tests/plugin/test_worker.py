"""The seeded generator that can take back a draw."""

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def test_taking_back_a_draw_leaves_the_generator_where_it_was() -> None:
    import torch

    from superinfer_executor.plugin.worker import ReplayedGenerator, draw_tokens

    kept = [1, 2, 3]
    generator = ReplayedGenerator.seeded(42, lambda: len(kept))
    plain = torch.Generator().manual_seed(42)
    draw_tokens(plain, 3)
    for _ in range(4):  # four chunks of a prefill, each drawn for and taken back
        draw_tokens(generator, 1)
        generator.set_offset(generator.get_offset() - 4)
        assert torch.equal(generator.get_state(), plain.get_state())
    draw_tokens(generator, 1)
    draw_tokens(plain, 1)
    kept.append(4)
    draw_tokens(generator, 1)
    generator.set_offset(generator.get_offset() - 4)
    assert torch.equal(generator.get_state(), plain.get_state())


def test_tokens_the_engine_took_back_are_drawn_again() -> None:
    import torch

    from superinfer_executor.plugin.worker import ReplayedGenerator, draw_tokens

    kept = list(range(10))
    generator = ReplayedGenerator.seeded(42, lambda: len(kept))
    del kept[4:]
    generator.set_offset(0)
    plain = torch.Generator().manual_seed(42)
    draw_tokens(plain, 4)
    assert torch.equal(generator.get_state(), plain.get_state())
