"""Chat templates of the models we prepare: ChatML, with tools the way Hermes models write them.

Without tools and tool messages the SmolLM2 template renders exactly what the one in its GGUF does. The tools
part is ours: the 135M model was not trained on tools, but the form is what vLLM's `hermes` parser reads.
"""

SMOLLM2_SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chatml_with_tools(default_system_prompt: str | None) -> str:
    """A ChatML template; `default_system_prompt` is used where the conversation brings none."""
    return _HEAD.replace("DEFAULT_SYSTEM", repr(default_system_prompt or "")) + _MESSAGES


# The system turn is written when the conversation has one, the model wants a default, or tools must be told.
_HEAD = """\
{%- set ns = namespace(system=DEFAULT_SYSTEM) -%}
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set ns.system = messages[0]['content'] or '' -%}
{%- endif -%}
{%- if tools -%}
{%- set ns.system = ns.system + '\\n\\n# Tools\\n\\nYou may call these functions:\\n<tools>' -%}
{%- for tool in tools -%}
{%- set ns.system = ns.system + '\\n' + (tool | tojson) -%}
{%- endfor -%}
{%- set ns.system = ns.system + '\\n</tools>\\n\\nFor each call answer with a JSON object inside tags:\\n\
<tool_call>\\n{"name": <function-name>, "arguments": <arguments-object>}\\n</tool_call>' -%}
{%- endif -%}
{%- if ns.system or (messages and messages[0]['role'] == 'system') -%}
{{- '<|im_start|>system\\n' + ns.system + '<|im_end|>\\n' -}}
{%- endif -%}
"""

_MESSAGES = """\
{%- for message in messages -%}
{%- if message['role'] == 'system' and loop.first -%}
{%- elif message['role'] == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + (message['content'] or '') \
+ '\\n</tool_response><|im_end|>\\n' -}}
{%- elif message['role'] == 'assistant' and message.get('tool_calls') -%}
{{- '<|im_start|>assistant\\n' + (message.get('content') or '') -}}
{%- for call in message['tool_calls'] -%}
{{- '\\n' if not loop.first or message.get('content') else '' -}}
{{- '<tool_call>\\n{"name": ' + (call['function']['name'] | tojson) + ', "arguments": ' -}}
{%- if call['function']['arguments'] is string -%}
{{- call['function']['arguments'] -}}
{%- else -%}
{{- call['function']['arguments'] | tojson -}}
{%- endif -%}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
