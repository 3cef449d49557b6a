#!/usr/bin/python3
"""Write test vectors for package chat: what transformers (5.24.0, with jinja2 3.1.6) makes of
conversations with templates in the manners of well-known families. The templates were written for
this project.

Usage: chat_vectors.py files/tokenizer/chat/testdata/vectors.json
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

vectors = []
for name, template in TEMPLATES.items():
    for chat in CHATS:
        for prompt in (False, True):
            vector = {"name": name, "template": template, "messages": chat, "prompt": prompt}
            try:
                rendered, _ = render_jinja_template([chat], chat_template=template, add_generation_prompt=prompt, **TOKENS)
                vector["text"] = rendered[0]
            except Exception as error:  # of any type: the template refuses
                vector["error"] = type(error).__name__
            vectors.append(vector)
with open(sys.argv[1], "w") as file:
    json.dump(vectors, file, ensure_ascii=False, indent=1)
    file.write("\n")
print(len(vectors), "vectors,", sum("error" in v for v in vectors), "of them errors")
