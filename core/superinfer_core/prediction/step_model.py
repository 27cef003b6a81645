"""How long one engine step takes: a linear model small enough to fit offline and to correct online.

Promise: pure and total; any finite non-negative input gives a finite, non-negative time. Frozen values,
safe to share between threads and tasks.

The form is the usual one of serving papers (SCORPIO, arXiv 2505.23022, fits `a*B*L + b*B + c*L + d`;
SLOs-Serve, arXiv 2504.08784, a roofline of the same terms): a constant, the sequences decoding, the context
they read, the prompt tokens computed, and the attention those tokens pay to the context before them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, sqrt
from typing import Final, Self


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What one engine step did and how long it took (mirrors the proto message of that name)."""

    step_ms: float
    prefill_tokens: int
    prefill_context_tokens2: float
    decode_seqs: int
    decode_context_tokens: int


@dataclass(frozen=True, slots=True)
class StepModel:
    """Time of a step in milliseconds, linear in what the step computes.

    Attributes:
        base_ms: every step.
        per_decode_seq_ms: each sequence that decodes one token.
        per_decode_context_token_ms: each token of context a decoding sequence attends to.
        per_prefill_token_ms: each prompt token computed.
        per_prefill_context_token2_ms: each (prompt token x context token) pair of attention; the pairs of a
            chunk are chunk * (context before + chunk / 2).
    """

    base_ms: float
    per_decode_seq_ms: float = 0.0
    per_decode_context_token_ms: float = 0.0
    per_prefill_token_ms: float = 0.0
    per_prefill_context_token2_ms: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would make every later decision meaningless."""
        if not all(isfinite(c) and c >= 0 for c in self.coefficients):
            msg = f"step model coefficients must be finite and not negative: {self.coefficients}"
            raise ValueError(msg)

    @property
    def coefficients(self) -> tuple[float, float, float, float, float]:
        """The five coefficients in the order of the fields: what travels in a load report."""
        return (
            self.base_ms,
            self.per_decode_seq_ms,
            self.per_decode_context_token_ms,
            self.per_prefill_token_ms,
            self.per_prefill_context_token2_ms,
        )

    @classmethod
    def from_coefficients(cls, coefficients: Sequence[float]) -> Self:
        """The model of `coefficients`; raises ValueError unless there are five good ones."""
        if len(coefficients) != 5:
            msg = f"a step model has 5 coefficients, got {len(coefficients)}"
            raise ValueError(msg)
        base, seq, context, prefill, attention = coefficients
        return cls(base, seq, context, prefill, attention)

    def step_ms(
        self,
        *,
        decode_seqs: float = 0,
        decode_context_tokens: float = 0,
        prefill_tokens: float = 0,
        prefill_context_tokens2: float = 0.0,
    ) -> float:
        """Predicted time of one step."""
        return (
            self.base_ms
            + self.per_decode_seq_ms * decode_seqs
            + self.per_decode_context_token_ms * decode_context_tokens
            + self.per_prefill_token_ms * prefill_tokens
            + self.per_prefill_context_token2_ms * prefill_context_tokens2
        )

    def predict(self, facts: StepFacts) -> float:
        """Predicted time of a step that did what `facts` says."""
        return self.step_ms(
            decode_seqs=facts.decode_seqs,
            decode_context_tokens=facts.decode_context_tokens,
            prefill_tokens=facts.prefill_tokens,
            prefill_context_tokens2=facts.prefill_context_tokens2,
        )

    def prefill_work_ms(self, tokens: float, context_tokens: float = 0) -> float:
        """Time `tokens` prompt tokens after `context_tokens` add to the steps they share, however chunked.

        The attention of consecutive chunks telescopes: the sum of chunk * (before + chunk / 2) is
        tokens * context + tokens^2 / 2.
        """
        return tokens * (
            self.per_prefill_token_ms + self.per_prefill_context_token2_ms * (context_tokens + 0.5 * tokens)
        )

    def prefill_ms(self, tokens: int, *, context_tokens: int = 0, chunk_tokens: int) -> float:
        """Time until a prefill is done on an engine that does nothing else, in chunks of `chunk_tokens`."""
        steps = max(1, ceil(tokens / max(1, chunk_tokens)))
        return steps * (self.base_ms + self.per_decode_seq_ms) + self.prefill_work_ms(tokens, context_tokens)

    def prefill_tokens_within(self, budget_ms: float, context_tokens: float = 0) -> float:
        """The most prompt tokens whose own work fits in `budget_ms`; infinite where tokens cost nothing.

        Solves q/2 * c^2 + (p + q * context) * c = budget for c >= 0.
        """
        if not budget_ms > 0:
            return 0.0
        half_q = 0.5 * self.per_prefill_context_token2_ms
        linear = self.per_prefill_token_ms + self.per_prefill_context_token2_ms * context_tokens
        if half_q * budget_ms < 1e-12 * max(linear * linear, 1e-300):
            return budget_ms / linear if linear > 0 else float("inf")
        return 2 * budget_ms / (linear + sqrt(linear * linear + 4 * half_q * budget_ms))


UNPROFILED: Final = StepModel(base_ms=5.0, per_decode_seq_ms=0.1, per_prefill_token_ms=0.06)
"""Where nobody measured: of the order of a small model's steps, corrected from the first steps on."""
