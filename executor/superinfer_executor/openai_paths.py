"""The endpoints of the OpenAI API an engine answers, by their paths; of vLLM and the stub alike."""

from typing import Final

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETIONS_PATH: Final = "/v1/completions"
