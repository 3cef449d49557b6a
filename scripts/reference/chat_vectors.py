#!/usr/bin/python3
"""Write test vectors for package chat: the output of transformers (5.24.0, with jinja2 3.1.6) for
conversations, with templates in the style of well-known families. The templates were written for
this project.

Usage: chat_vectors.py files/tokenizer/chat/testdata
"""
import json
import sys

from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TEMPLATES = {
    "chatml": "{% for m in messages %}\n{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>' + '\\n' }}\n{% endfor %}\n" + PROMPT,
    "llama2": """{%- if messages[0].role == 'system' -%}
{%- set rest = messages[1:] -%}{%- set system = '<<SYS>>\\n' ~ messages[0].content|trim ~ '\\n<</SYS>>\\n\\n' -%}
{%- else -%}{%- set rest = messages -%}{%- set system = '' -%}{%- endif -%}
{%- for m in rest -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must take turns') }}{%- endif -%}
  {%- if m.role == 'user' -%}{{ bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ m.content.strip() ~ ' [/INST]' }}
  {%- else -%}{{ ' ' + m.content.strip() + ' ' + eos_token }}{%- endif -%}
{%- endfor -%}""",
    "llama3": """{{- bos_token }}
{%- if not day is defined %}{% set day = '26 Jul 2024' %}{% endif %}
{%- if tools is not none %}{{ tools | tojson(indent=4) }}{% endif %}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + (m['content'] | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
{{ day }}
""",
    "gemma": """{{ bos_token }}{% for m in messages %}
{% if m.role == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = m.role %}{% endif %}
    {{ '<start_of_turn>' + role + '\\n' }}{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}
""",
    "phi3": "{% for m in messages %}{{'<|' + m.role + '|>' + '\\n' + m.content + '<|end|>\\n'}}{% endfor %}{{ '<|assistant|>' if add_generation_prompt else eos_token }}",
    "zephyr": "{# a comment #}\n{% for m in messages %}\n    {%+ if m.role in ['user', 'system'] %}\n{{ m.role | upper }}: {{ m.content }}\n    {% elif loop.last %}\nlast {{ loop.revindex }}\n{% else %}{{ m }}\n    {% endif %}\n{% endfor %}\n",
    "deepseek": """{% set ns = namespace(system='', seen=false) %}{% for m in messages if m.role == 'system' %}{% set ns.system = ns.system + m.content %}{% set ns.seen = true %}{% endfor %}
{{ bos_token ~ ns.system }}{% for m in messages | rejectattr('role', 'equalto', 'system') %}
{%- if m.role == 'assistant' and '</think>' in m.content %}{% set text = m.content.split('</think>')[-1].lstrip('\\n') %}{% else %}{% set text = m.content %}{% endif %}
{{ '<|' ~ m.role | capitalize ~ '|>' ~ text }}{% endfor %}""",
    "qwen": """{%- macro turn(role, text='') %}<|im_start|>{{ role }}
{{ text }}<|im_end|>
{% endmacro %}
{%- if tools %}{{ raise_exception('tools') }}{% endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for m in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}
  {%- if m.role == 'user' and not m.content.startswith('<tool>') %}{% set ns.last = index %}{% break %}{% endif %}
{%- endfor %}
{%- for m in messages %}{{ turn(m.role, text=m.content | tojson) }}{% if loop.index0 == ns.last %}*{% endif %}{% endfor %}""" + PROMPT,
    "mixed": """{{ messages | map(attribute='role') | join(', ') }} {{ messages[0].name is defined }} {{ none }} {{ [1, 'a', ("b",)] }} {{ {'k': true} }}
{{- -7 // 2 }} {{ -7 % 3 }} {{ 'é\\u00fc'[0] }} {{ 'abcdef'[-2::-2] }} {{ missing | default('d') }} {{ '' | d('e', true) }} {{ missing }}
{% set block %}
  in {{ messages | length }}
{% endset %}{{ block | trim | replace('in', 'out') }} {{ 1 < 2 < 3 }} {{ not 1 == 2 }} {{ 'a' ~ 1 + 2 }} {{ messages | selectattr('role', '==', 'user') | list | length }}
{% for k, v in messages[0].items() %}{{ loop.index }}{{ k }}={{ v }}{{ ';' if not loop.last }}{% else %}none{% endfor %}""",
}
USER = {"role": "user", "content": " Hi, \"you\"\n"}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief. "}, USER],
    [USER, {"role": "assistant", "content": "<think>\nso\n</think>\n\nHello é"}, {"role": "user", "content": "and it's {{ 1 }}?"}],
    [{"role": "assistant", "content": "I begin"}, USER],
    [],
]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The \"weather\" of a place; é.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string", "enum": ["Paris", "Köln"]}, "limit": {"type": "number", "minimum": 0.5, "maximum": 1e21, "default": 3.0}}, "required": ["place"]},
        },
    },
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}, "strict": False, "nothing": None}}},
]
CALL = [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Köln", "limit": 0.25, "deep": [1, [2.5e-7, None]]}}}]
TOOL_CHATS = [
    [USER],
    [USER, {"role": "assistant", "content": None, "tool_calls": CALL}, {"role": "tool", "content": "12.5 °C", "tool_call_id": "c1", "name": "get_weather"}],
    [USER, {"role": "assistant", "content": "Let me see.", "tool_calls": CALL + CALL}, {"role": "tool", "content": "{}", "tool_call_id": "c1"}, {"role": "assistant", "content": "Warm."}, USER],
]
TOOL_TEMPLATES = {
    "hermes": """{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}{{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role }}
        {%- if m.content %}{{- '\n' + m.content }}{%- endif %}
        {%- for call in m.tool_calls or [] %}
            {%- if call.function is defined %}{% set call = call.function %}{% endif %}
            {{- '\n<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' ~ call.arguments | tojson ~ '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}""" + PROMPT,
    "calls": """{% if tools is not none %}{{ tools | tojson(indent=4) }}{{ tools | length }}{% for t in tools %}
{% for name, p in t.function.parameters.properties.items() %}{{ name }}: {{ p }} {{ p.minimum is defined }} {{ p.minimum is number }}
{% endfor %}{% endfor %}{% endif %}
{% for m in messages %}{{ m }}{% if m.tool_calls is defined and m.tool_calls %}[CALLS] {% for c in m.tool_calls %}{{ c.id ~ c['function'].arguments.limit * 2 }}{% endfor %}{% endif %}{{ m.tool_call_id }}{{ m.name }}{{ m.content is none }}{% endfor %}""",
    "floats": """{{ 1.5 }} {{ 1e16 }} {{ 1.0e-5 }} {{ 0.0001 }} {{ 123456789012345.5 }} {{ 2.0 }} {{ -0.5 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 2 ** 10 }} {{ 2 * 3 ** 2 }} {{ 0 ** 0 }} {{ -1 ** 3 }}
{{ 1.0 == 1 }} {{ 1 < 1.5 }} {{ 0.1 + 0.2 }} {{ 1 + 0.5 }} {{ 3 - 0.5 }} {{ 2 * 0.5 }} {{ 1.5 is float }} {{ 1 is float }} {{ 1.5 is integer }} {{ 1.5 is number }} {{ [1.0, 2.5e3] }} {{ {'a': 0.1} | tojson }} {{ 'yes' if 0.0 else 'no' }}
{{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ 3.7 | int }} {{ -3.7 | int }} {{ 3 | float }} {{ -1.5 | abs }} {{ 0.5 in [0.5] }} {{ 'a' ~ 1.50 }} {{ 1.5 | string }} {{ 5 | round }} {{ 0.3 // 0.1 }} {{ 1.5 is string }} {{ -0.0 }} {{ 1e5 }} {{ 1E5 }} {{ 1.25 if messages[0].x is defined else messages | length / 4 }} {{ 1e22 }} {{ 0.1 * 3 }} {{ 5 // 0.5 }} {{ -6.0 % 3 }} {{ 1.5 > 1 }} {{ 1.5 == "1.5" }} {{ 1.5 != 2 }} {{ [1, 1.5] | tojson }} {{ 100 * 1.1 }} {{ (0.5).is_integer is defined }}""",
}

vectors = []
for name, template in TEMPLATES.items():
    for chat in CHATS:
        for prompt in (False, True):
            vector = {"name": name, "template": template, "messages": chat, "prompt": prompt}
            try:
                rendered, _ = render_jinja_template([chat], chat_template=template, add_generation_prompt=prompt, **TOKENS)
                vector["text"] = rendered[0]
            except Exception as error:  # any type means that the template refused
                vector["error"] = type(error).__name__
            vectors.append(vector)
with open(sys.argv[1] + "/vectors.json", "w") as file:
    json.dump(vectors, file, ensure_ascii=False, indent=1)
    file.write("\n")
print(len(vectors), "vectors,", sum("error" in v for v in vectors), "of them errors")

templates = {**TOOL_TEMPLATES, **{name: TEMPLATES[name] for name in ("llama3", "qwen")}}
vectors = []
for name, template in templates.items():
    for number, chat in enumerate(TOOL_CHATS):
        for tools in (None, TOOLS):
            for prompt in (False, True):
                vector = {"template": name, "chat": number, "tools": tools is not None, "prompt": prompt}
                try:
                    rendered, _ = render_jinja_template([chat], tools=tools, chat_template=template, add_generation_prompt=prompt, **TOKENS)
                    vector["text"] = rendered[0]
                except Exception as error:  # any type means that the template refused
                    vector["error"] = type(error).__name__
                vectors.append(vector)
with open(sys.argv[1] + "/tools.json", "w") as file:
    lines = ",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors)
    head = json.dumps({"templates": templates, "chats": TOOL_CHATS, "tools": TOOLS}, ensure_ascii=False, indent=1)
    file.write(head.removesuffix("\n}") + ',\n "vectors": [\n' + lines + "\n]\n}\n")
print(len(vectors), "vectors with tools,", sum("error" in v for v in vectors), "of them errors")
