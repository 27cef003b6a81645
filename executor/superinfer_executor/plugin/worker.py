"""The worker's half of resume and preemption, for vLLM's model runner V1.

Two changes to how the runner keeps a request, made once per process:
- Output tokens of a resumed request are there from the start, and its seeded generator has made the draws
  that produced them.
- A seeded request may be prefilled in chunks on CPU. The runner takes back the draw of an unfinished chunk
  with `set_offset(get_offset() - 4)`, which CPU generators refuse ("CPU Generator does not use offset", vLLM
  0.32); preemption and resume take that path, so it cannot be left to luck.

Model runner V2 samples by (seed, position) and is given all tokens by the scheduler: nothing to change there.
"""

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from vllm.v1.worker import gpu_input_batch

from superinfer_executor.plugin.request_slo import InvalidRequestSlo, resume_token_ids

_PATCHED: Final = "_superinfer_patched"
DRAW_BOUND: Final = 2**31


class ReplayedGenerator(torch.Generator):  # type: ignore[misc]
    """A CPU generator that can take back a draw: its state is a function of the seed and the tokens kept."""

    kept_tokens: Callable[[], int]
    _start: torch.Tensor
    _mark: tuple[int, torch.Tensor]

    @classmethod
    def seeded(cls, seed: int, kept_tokens: Callable[[], int]) -> "ReplayedGenerator":
        """As `torch.Generator().manual_seed(seed)` after one draw per token that is already kept."""
        generator = cls(device="cpu")
        generator.manual_seed(seed)
        generator.kept_tokens = kept_tokens
        generator._start = generator.get_state()
        generator._mark = (0, generator._start)
        generator.rewind()
        return generator

    def rewind(self) -> None:
        """Forget the draws of tokens that were not kept."""
        kept = self.kept_tokens()
        marked, state = self._mark if self._mark[0] <= kept else (0, self._start)
        self.set_state(state)
        if kept > marked:
            draw_tokens(self, kept - marked)
            self._mark = (kept, self.get_state())  # a long prefill rewinds once per chunk

    def get_offset(self) -> int:
        """What the runner subtracts a draw from; any number will do."""
        return 0

    def set_offset(self, offset: int) -> None:
        """The runner's way to take back the draw of an unfinished prefill chunk."""
        del offset
        self.rewind()


def draw_tokens(generator: torch.Generator, tokens: int) -> None:
    """Advance a CPU generator as vLLM's CPU sampler does for `tokens` sampled tokens."""
    for _ in range(tokens):
        torch.randint(0, DRAW_BOUND, (1,), generator=generator, dtype=torch.long)


def install() -> None:
    """Patch the V1 runner's request state; harmless when done before, or when the runner is V2."""
    state = gpu_input_batch.CachedRequestState
    if getattr(state, _PATCHED, False):
        return
    original = state.__post_init__

    def post_init(self: Any) -> None:
        original(self)
        _take_over(self)

    state.__post_init__ = post_init
    setattr(state, _PATCHED, True)


def _take_over(state: Any) -> None:
    params = state.sampling_params
    if params is None:
        return
    if not state.output_token_ids and params.extra_args:
        try:
            state.output_token_ids.extend(resume_token_ids(params.extra_args))
        except InvalidRequestSlo:
            return  # the scheduler has failed this request already
    generator = state.generator
    if generator is not None and generator.device.type == "cpu" and params.seed is not None:
        # The runner may put another list in the place of this one; a weak reference, since the state owns us.
        kept_by = weakref.ref(state)
        state.generator = ReplayedGenerator.seeded(params.seed, lambda: _kept_tokens(kept_by()))


def _kept_tokens(state: Any) -> int:
    return 0 if state is None else len(state.output_token_ids)
