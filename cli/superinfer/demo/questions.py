"""What the demo asks. Nothing here matters but that answers are long enough and prompts of known length."""

from typing import Final

from superinfer.demo.targets import unloaded_ttft_ms
from superinfer_core.prediction.profile import Profile

GOLD_QUESTION: Final = "In two sentences: why do people keep promises?"
URGENT_QUESTION: Final = "Name three colours of the rainbow."
BACKLOG: Final = (
    "Describe a lighthouse in one sentence.",
    "Describe a bakery in one sentence.",
    "Describe a harbour in one sentence.",
    "Describe a forest in one sentence.",
    "Describe a railway station in one sentence.",
)
STORIES: Final = (
    "Tell me a long story about a lighthouse keeper and a storm.",
    "Tell me a long story about a baker who lost her recipe book.",
    "Tell me a long story about a train that was never late.",
    "Tell me a long story about a gardener and a very old tree.",
)

_PARAGRAPH: Final = (
    "The committee met on Monday and went through the figures of the past quarter. Sales in the north rose,"
    " sales in the south fell, and nobody could say why. It was agreed to ask the branches for a report. "
)
_PARAGRAPH_TOKENS: Final = 42
_BEYOND: Final = 1.6
"""How far reading the report must be beyond the promise, so that no luck can keep it."""


def report_of(profile: Profile, promised_ms: float, *, edition: int = 1) -> str:
    """A report too long to be read within `promised_ms` on an idle engine, as short as that allows.

    Another edition begins with other words, so that no engine finds it in its prefix cache.
    """
    paragraphs = 2
    most = (profile.max_model_len or 1024) // _PARAGRAPH_TOKENS - 3
    while paragraphs < most:
        if unloaded_ttft_ms(profile, paragraphs * _PARAGRAPH_TOKENS) > _BEYOND * promised_ms:
            break
        paragraphs += 1
    return f"Edition {edition}. Sum up this report in one sentence. " + _PARAGRAPH * paragraphs
