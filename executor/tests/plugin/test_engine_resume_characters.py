"""An answer of characters that are several tokens each, cut after every one of its tokens."""

from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def test_every_cut_of_multi_byte_characters_goes_on_exactly(
    engine: Any, tight_engine: Any, prompt_of: Any
) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    options = {
        "structured_outputs": StructuredOutputsParams(regex="[🚀ガ漢é]{12,20}"),
        "ignore_eos": False,
        "temperature": 0.9,
        "top_p": 0.95,
        "seed": 7,
        "max_tokens": 80,
    }
    prompt = prompt_of(50, 3)
    engine.submit("whole", prompt, **options)
    engine.run()
    whole = engine.tokens["whole"]
    assert len(whole) > 24

    broken = []
    for cut in range(1, len(whole)):
        name = f"cut{cut}"
        tight_engine.submit(name, prompt, resume_token_ids=whole[:cut], **options)
        tight_engine.run()
        if whole[:cut] + tight_engine.tokens[name] != whole:
            broken.append((cut, tight_engine.finished[name]))
        assert tight_engine.finished[name] == engine.finished["whole"]
    assert broken == []
