#!/usr/bin/python3
"""Write test vectors for package chat: the output of transformers (5.24.0, with jinja2 3.1.6) for small
templates, each of which uses one feature of Jinja. The templates were written for this project.

Usage: chat_features.py files/tokenizer/chat/testdata
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template

NOW = datetime.datetime(2026, 1, 5, 6, 7, 8, 90)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": {"b": "x<y>", "a": [1, 2.5, None], "C": {"d": True}}}}
CHAT = [
    {"role": "system", "content": "it's a 2nd \"test\", o'brien-smith (really) <b>x</b> ǆ ß ﬁ ΑΣ Σ."},
    {"role": "user", "content": " a b  c\td\n\ne ", "name": "Ann"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, {"id": "c2", "type": "function", "function": {"name": "stop", "arguments": ""}}]},
    {"role": "tool", "content": None, "tool_call_id": "c1", "name": ""},
    {"role": "tool", "tool_call_id": None, "name": None},
    {"role": "assistant", "content": "Ünïcode 🙂 & done", "tool_calls": None},
]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": ["array", "null"], "maximum": 18446744073709551615}}}}}]
ARGUMENTS = "messages[2].tool_calls[0].function.arguments"
S, U = "messages[0].content", "messages[1].content"

FEATURES = {
    "safe": [
        "{{ '<b>' | safe }}", "{{ ('<b>' | safe) + '<i>' }}", "{{ '<i>' + ('<b>' | safe) }}", "{{ ('<b>' | safe) ~ '<i>' }}", "{{ none | safe }}{{ missing | safe }}{{ 1.5 | safe }}",
        "{{ ['<' | safe, '<'] }}", "{{ {'a<': 1} | tojson | safe }}", "{{ ('<b>' | safe) * 2 + '&' }}", "{{ ('a<b' | safe).split('<') }}", "{{ ('a,b' | safe).replace(',', '<') }}",
        "{{ ('a,b' | safe) | replace(',', '<') }}", "{{ ('-' | safe).join(['<', 1]) }}", "{{ ['<', '>' | safe] | join('&') }}", "{{ ('<b>' | safe) is string }}{{ ('<b>' | safe) is escaped }}{{ '<' is escaped }}",
        "{{ ('<b>' | safe) == '<b>' }}{{ '<' in ('<b>' | safe) }}", "{{ ('%s' | safe) % '<' }}{{ '%s' % ('<' | safe) }}", "{{ (' <b> ' | safe) | trim + '<' }}", "{{ ('<b>' | safe)[0] + '<' }}{{ ('<b>' | safe)[1:] + '<' }}",
        "{{ ('<b>' | safe) | upper + '<' }}{{ ('<b>' | safe) | string + '<' }}{{ ('<b>' | safe) | title + '<' }}", "{% set x %}{{ '<' | safe }}{% endset %}{{ x + '<' }}", "{% macro m() %}<{% endmacro %}{{ (m() | safe) + '<' }}{{ m() + '<' }}",
        "{{ '<&>\"\\'' | escape }}{{ '<' | e | e }}{{ ('<' | e) | forceescape }}", "{{ {('a' | safe): 1}['a'] }}", "{{ ('a\\nb' | safe) | indent(2) + '<' }}", "{{ ('<b>' | safe) | length }}{{ ('ab' | safe) | list }}", "{{ ('<' | safe) | tojson }}",
        "{{ ('a<' | safe).partition('<') }}{{ ('<' | safe).startswith('<') }}{{ ('<' | safe).find('<') }}", "{{ ('<' | safe) | default('x') ~ (('' | safe) | default('x', true)) }}", "{{ ('%s %s' | safe) | format('<', '&' | safe) }}",
    ],
    "title": [
        f"{{{{ {S} | title }}}}", f"{{{{ {S}.title() }}}}", "{{ \"they're bill's friends from 2nd 3b\" | title }}", "{{ \"they're bill's friends from 2nd 3b\".title() }}", "{{ 'fOO-bAR (baz) [qux] {x} <y> a_b 1a' | title }}", "{{ 'fOO-bAR (baz) [qux] {x} <y> a_b 1a'.title() }}",
        "{{ '' | title }}|{{ ''.title() }}|{{ none | title }}|{{ 12 | title }}", "{{ 'ǆ ﬁx ßa ŉ' | title }} {{ 'ǆ ﬁx ßa ŉ'.title() }} {{ 'ὈΔΥΣΣΕΎΣ ΣΑΣ Σ' | title }} {{ 'ὈΔΥΣΣΕΎΣ ΣΑΣ.Σ'.title() }}", "{{ 'a\\tb\\nc\\u00a0d\\u2003e' | title }}", "{{ 'user'.title() ~ ': ' }}{{ messages | map(attribute='role') | map('title') | join(',') }}",
    ],
    "letters": [
        "{{ 'ß ﬁ ŉ ΐ ᾳ ı İ ǆ é' | upper }}", "{{ 'ΑΣ ΑΣ. ΑΣΑ Σ ΑΣ̈ İ ẞ K' | lower }}", "{{ 'ßa ΣΑΣ ǆ ﬁx' | capitalize }}", "{{ 'ßA ΣaΣ ǅ ﬁX'.swapcase() }}", "{{ 'É ÀB'.lower() }} {{ 'é àb'.upper() }} {{ 'éA'.capitalize() }}",
        "{{ 'ab'.isupper() }}{{ 'AB1'.isupper() }}{{ '1'.isupper() }}{{ 'a b1'.islower() }}{{ ''.islower() }}{{ 'ǅ'.isupper() }}", "{{ 'aé'.isalpha() }}{{ 'a1'.isalpha() }}{{ 'a1'.isalnum() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ '1.5'.isdigit() }}{{ ' \\n'.isspace() }}{{ 'é'.isascii() }}{{ ''.isascii() }}",
        "{{ 'a' is lower }}{{ 'A' is upper }}{{ 'Aa' is upper }}{{ 1 is lower }}",
    ],
    "split": [
        f"{{{{ {U}.split() }}}}", f"{{{{ {U}.split(none, 1) }}}}", f"{{{{ {U}.split(none, 0) }}}}", f"{{{{ {U}.split(' ') }}}}", f"{{{{ {U}.split(' ', 2) }}}}", f"{{{{ {U}.rsplit(none, 1) }}}}", f"{{{{ {U}.rsplit(none, 0) }}}}", f"{{{{ {U}.rsplit(' ', 2) }}}}", f"{{{{ {U}.rsplit() }}}}",
        "{{ 'aaa'.rsplit('aa') }}{{ 'a\\n\\n\\nb'.rsplit('\\n\\n', 1) }}{{ 'aaaaa'.rsplit('aa', 1) }}{{ 'aaaaa'.rsplit('aa', 0) }}{{ 'aaaaa'.split('aa', 1) }}", "{{ 'a--b--c'.split('--', 1) }}{{ 'a--b--c'.rsplit('--', 1) }}", "{{ 'a,b,c'.split(',', maxsplit=1) }}{{ 'a,b,c'.split(sep=',') }}{{ 'a,b'.split(',', -1) }}{{ 'a,b'.split(',', 0) }}{{ 'a,b'.split(',', 9) }}", "{{ ''.split() }}{{ ''.split(',') }}{{ ','.split(',') }}{{ '   '.split(none, 1) }}{{ '   '.rsplit(none, 0) }}",
        "{{ 'a'.split('') }}", "{{ 'a b'.split(1) }}", "{{ 'a<think>b</think>c'.split('</think>', 1)[1] }}", "{{ 'a\\u00a0b\\u2003c'.split() }}", "{{ 'a\\nb\\r\\nc\\x0bd\\x1ce\\u2028f\\n'.splitlines() }}{{ 'a\\n\\nb'.splitlines(true) }}{{ ''.splitlines() }}",
        "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'a'.partition('=') }}{{ 'a'.rpartition('=') }}", "{{ 'a,b'.split(',', 1.0) }}", "{{ 'a,b'.split(',', true) }}",
    ],
    "string methods": [
        "{{ 'banana'.find('an') }}{{ 'banana'.rfind('an') }}{{ 'banana'.find('x') }}{{ 'banana'.find('an', 2) }}{{ 'banana'.find('an', -2) }}{{ 'éan'.find('a') }}{{ 'banana'.find('', 3) }}{{ 'a'.find('', 9) }}", "{{ 'banana'.index('n') }}{{ 'banana'.rindex('n', 0, 4) }}", "{{ 'banana'.index('x') }}", "{{ 'banana'.count('an') }}{{ 'aaa'.count('') }}{{ 'banana'.count('a', 2, 5) }}",
        "{{ 'banana'.replace('a', 'o', 2) }}{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ 'a'.replace('a', 'b', -1) }}", "{{ 'a.b.a' | replace('a', 'b', 1) }}{{ 'a.b' | replace(old='a', new=1) }}{{ none | replace('None', 'x') }}{{ 'ab' | replace('a', 'b', count=0) }}",
        "{{ 'xyabcyx'.strip('xy') }}{{ '  a '.lstrip() }}|{{ '  a '.rstrip() }}|{{ 'a'.strip(none) }}{{ 'xx' | trim('x') }}{{ '--a--' | trim(chars='-') }}{{ none | trim }}{{ missing | trim }}", "{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith(('x', 'a')) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc'.startswith('') }}{{ 'abc'.startswith('', 9) }}",
        "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('x') }}", "{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '*') }}{{ 'ab'.center(5, '.') }}{{ 'abc'.center(6, '.') }}{{ 'a' | center(4) }}|", "{{ ', '.join(['a', 'b']) }}{{ '-'.join('abc') }}{{ ''.join({'x': 1, 'y': 2}) }}", "{{ ', '.join(['a', 1]) }}",
        "{{ '{} {}'.format(1, 'a') }}{{ '{1}{0}{x}'.format('a', 'b', x=none) }}{{ '{{}}'.format() }}", "{{ '{} {}'.format(1) }}", "{{ '%s is %d and %5.2f|%-4s|%04d|%x' % ('a', 3, 2.5, 'b', -7, 255) }}", "{{ '%s' % none }}{{ '%s' % [1] }}{{ '%(a)s' % {'a': 1} }}{{ '100%%' % () }}{{ '%r' % 'a' }}{{ '%+d % d %.2s' % (1, 2, 'abc') }}{{ '%e %E' % (12345.678, 0.00012) }}", "{{ '%s %s' % 'a' }}", "{{ 'a' % 'b' }}", "{{ '%d' % 'b' }}", "{{ '%d %i' % (3.9, -3.9) }}{{ '%s=%s' | format('a', 1) }}{{ '%(a)s' | format(a=2) }}",
        "{{ 'abc'.upper is defined }}{{ 'abc'.nosuch is defined }}{{ 'abc'['upper']() }}{{ 'abc'.__class__ }}|{{ 'abc'.__class__ is defined }}",
    ],
    "dictsort": [
        f"{{{{ {ARGUMENTS} | dictsort }}}}", "{{ {'b': 2, 'A': 1, 'a': 3, 'B': 0} | dictsort }}", "{{ {'b': 2, 'A': 1, 'a': 3, 'B': 0} | dictsort(true) }}", "{{ {'b': 2, 'A': 1, 'a': 3} | dictsort(false, 'value') }}", "{{ {'b': 'X', 'A': 'y', 'a': 'Y'} | dictsort(by='value') }}", "{{ {'b': 'X', 'A': 'y', 'a': 'Y'} | dictsort(by='value', reverse=true) }}", "{{ {'b': 2, 'A': 1} | dictsort(reverse=true) }}{{ {'b': 2, 'A': 1} | dictsort(case_sensitive=true) }}",
        "{% for k, v in {'b': 2, 'a': 1} | dictsort %}{{ k }}={{ v }};{% endfor %}", "{{ {'a': 1} | dictsort(by='x') }}", "{{ {'a': 1, 2: 3} | dictsort }}", "{{ {'a': 1, 'b': none} | dictsort(by='value') }}", "{{ {2: 'a', 10: 'b', 1.5: 'c', true: 'd'} | dictsort }}", "{{ none | dictsort }}", "{{ {} | dictsort }}{{ {'a': [2], 'b': [1, 5]} | dictsort(by='value') }}", "{{ [1] | dictsort }}",
    ],
    "reject": [
        "{{ [1, 2, 3, 4] | reject('odd') | list }}{{ [1, 2, 3, 4] | select('odd') | list }}", "{{ [0, 1, '', 'a', none] | reject | list }}{{ [0, 1, '', 'a', none] | select | list }}", "{{ ['a', 'b'] | reject('in', ['a']) | list }}{{ ['a', 'b'] | reject('equalto', 'a') | list }}{{ [1, 2, 3] | reject('>', 1) | list }}{{ [1, 2, 6] | select('divisibleby', 3) | list }}",
        "{{ messages | rejectattr('content') | map(attribute='role') | list }}{{ messages | selectattr('content') | map(attribute='role') | list }}", "{{ messages | rejectattr('name', 'defined') | map(attribute='role') | list }}{{ messages | selectattr('name', 'none') | list | length }}", "{{ messages | selectattr('tool_calls.0.id', 'equalto', 'c1') | list | length }}", "{{ none | reject | list }}{{ missing | rejectattr('x') | list }}{{ '' | select | list }}{{ none | map('upper') | list }}", "{{ 1 | reject | list }}", "{{ [1] | reject('nosuch') | list }}", "{{ [1] | rejectattr | list }}",
        "{{ ([1, 2] | reject('odd')) is iterable }}{{ ([1, 2] | reject('odd')) is sequence }}", "{{ [1, 2] | reject('odd') | length }}", "{{ [1, 2] | reject('odd') | last }}", "{{ [1, 2] | reject('odd') | first }}{{ [1] | reject('odd') | first }}", "{{ 'abc' | reject('in', 'b') | join }}", "{% set x = [1, 2] | select %}{{ x | list }}{{ x | list }}", "{{ messages | selectattr('role', 'in', ['user', 'tool']) | rejectattr('content', 'none') | map(attribute='content', default='-') | list }}",
        "{{ [{'a': {'b': 1}}, {'a': {'b': 0}}, {'a': {}}] | rejectattr('a.b') | list }}", "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}",
    ],
    "map and lists": [
        "{{ [{'a': 1}, {}] | map(attribute='a', default=0) | list }}{{ [[1, 2], [3]] | map(attribute=0) | list }}{{ [[1, 2], [3]] | map('length') | list }}", "{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A', 'c'] | sort(case_sensitive=true) }}{{ [3, 1, 2] | sort(reverse=true) }}{{ messages | sort(attribute='role') | map(attribute='role') | join(',') }}{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,b') }}", "{{ [1, 'a'] | sort }}",
        "{{ ['a', 'A', 'b'] | unique | list }}{{ ['a', 'A'] | unique(true) | list }}{{ messages | unique(attribute='role') | map(attribute='role') | list }}{{ [1, 1.0, true, '1'] | unique | list }}", "{{ [[1]] | unique | list }}", "{{ [3, 1] | min }}{{ [3, 1] | max }}{{ [] | max }}{{ ['b', 'A'] | min }}{{ messages | max(attribute='role') | length }}", "{{ [1, 2.5] | sum }}{{ [[1], [2]] | sum(start=[]) }}{{ [{'a': 2}] | sum(attribute='a') }}{{ [] | sum }}", "{{ ['a'] | sum }}",
        "{{ 'abc' | reverse }}{{ [1, 2] | reverse | list }}{{ {'a': 1, 'b': 2} | reverse | list }}{{ [1, 2] | select | reverse }}", "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ [1, 2, 3, 4, 5] | slice(3) | list }}{{ [1, 2, 3, 4] | slice(3, 'x') | list }}{{ [] | batch(2) | list }}", "{{ 'abc' | first }}{{ 'abc' | last }}{{ [] | first }}{{ {'a': 1, 'b': 2} | first }}{{ {'a': 1, 'b': 2} | last }}", "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ (1, 2).count(3) }}{{ [1].copy() }}", "{{ [1].append(2) }}", "{{ [1].append is defined }}{{ {}.update is defined }}{{ {}.items is defined }}",
        "{{ [1] * 2 + [3] }}{{ (1,) * 2 }}{{ 2 * 'ab' }}{{ [1, 2] < [1, 3] }}{{ (1, 2) >= (1,) }}{{ [[1, 2], [1]] | sort }}", "{{ 'a' | list }}{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{{ range(3) }}{{ range(1, 3, 2) }}{{ range(5)[2] }}{{ range(2) == range(0, 2) }}{{ 1 in range(2) }}{{ range(3) | length }}{{ range(3) is sequence }}", "{{ ['a', 1, none] | join }}{{ [{'a': 1}, {'a': 2}] | join('-', attribute='a') }}{{ [1] | join(d='x') }}{{ 'abc' | join('.') }}",
        "{{ messages | map('attr', 'items') | list | length }}{{ {'a': 1} | attr('a') }}{{ namespace(a=1) | attr('a') }}{{ 'a' | attr('upper') is defined }}",
    ],
    "dict": [
        "{{ dict(a=1) | tojson }}{{ dict({'a': 1}, b=2) }}{{ dict([('a', 1), ['b', 2]]) }}{{ dict() }}", "{{ dict(**{'a': 1, 'b': 2}) }}{{ dict({'a': 1}, **{'a': 3}) }}", "{{ dict(a=1, **{'a': 2}) }}", "{{ dict([1]) }}", "{{ dict(1, 2) }}", "{{ {1: 'a', '1': 'b', 2.5: 'c', none: 'd', true: 'e', (1, 'x'): 'f'} }}{{ {1: 'a'}[true] }}{{ {1: 'a'}[1.0] }}{{ {(1, 'x'): 'f'}[(1, 'x')] }}", "{{ {[1]: 1} }}", "{{ {1: 2, none: 3, true: 4, 2.5: 5} | tojson }}", "{{ {(1,): 2} | tojson }}",
        f"{{% for k, v in {ARGUMENTS}.items() %}}{{{{ k }}}}:{{{{ v }}}};{{% endfor %}}", "{{ {'a': 1}.items() }}{{ {'a': 1}.keys() }}{{ {'a': 1}.values() }}{{ {'a': 1}.keys() | list }}{{ 'a' in {'a': 1}.keys() }}", "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {1: 2}.get(1) }}{{ {'a': none}.get('a', 2) }}", "{{ {'a': 1}.get() }}", "{{ {'a': 1}.copy() }}{{ {'items': 1}.items is callable }}{{ {'items': 1}['items'] }}{{ {'_x': 1}._x }}{{ {'__class__': 1}.__class__ }}{{ {'__class__': 1}['__class__'] }}", "{{ {'a': 1, 'b': {'c': [1]}} == {'b': {'c': [1.0]}, 'a': true} }}{{ {} == {} }}{{ {'a': 1} != {'a': 2} }}", "{{ {'a': 1}['b'] is defined }}{{ {'a': 1}.b is defined }}{{ {'a': 1}[missing] is defined }}{{ {'a': 1}[[1]] is defined }}",
        "{{ {'a': 1} | items | list }}{{ missing | items | list }}", "{{ [1] | items | list }}", "{{ {'a': 1} | length }}{{ {'a': 1} | list }}{{ {'b': 1, 'a': 2} | sort }}{{ 'a' in {'a': 1} }}{{ 1 in {'a': 1} }}{{ [] in [[]] }}", "{{ [] in {'a': 1} }}", "{{ dict(a=1).a }}{{ dict is defined }}{{ dict is callable }}",
        "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.c is defined }}{% set ns.c = 3 %}{{ ns.c }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{{ namespace(_x=1) }}", "{% set d = {} %}{% set d.x = 1 %}",
    ],
    "tojson": [
        f"{{{{ {ARGUMENTS} | tojson }}}}", f"{{{{ {ARGUMENTS} | tojson(separators=(',', ':')) }}}}", f"{{{{ {ARGUMENTS} | tojson(separators=[' ,', ' : '], indent=1) }}}}", f"{{{{ {ARGUMENTS} | tojson(indent=0) }}}}", f"{{{{ {ARGUMENTS} | tojson(indent=-1) }}}}", f"{{{{ {ARGUMENTS} | tojson(indent='--') }}}}", f"{{{{ {ARGUMENTS} | tojson(indent=none, separators=none) }}}}", f"{{{{ {ARGUMENTS} | tojson(sort_keys=true) }}}}", f"{{{{ {ARGUMENTS} | tojson(indent=2, sort_keys=true, ensure_ascii=true) }}}}",
        "{{ 'é🙂\\u007f\\u2028' | tojson }}{{ 'é🙂\\u007f\\u2028' | tojson(ensure_ascii=true) }}{{ 'é' | tojson(true) }}{{ 'é' | tojson(4) }}", "{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[], {}] | tojson(indent=2) }}", "{{ [1, 2.0, 1e22, 1e-7, true, none, 'a\"\\\\/\\b\\f\\n\\r\\t\\x01'] | tojson }}", "{{ (1, (2,)) | tojson }}{{ 'a' | tojson(ensure_ascii=false, indent=4) }}", "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", "{{ {'b': 1, 2: 2} | tojson(sort_keys=true) }}", "{{ missing | tojson }}", "{{ range(2) | tojson }}", "{{ [1] | tojson(separators='ab') }}{{ [1, 2] | tojson(separators=',:') }}", "{{ [1, 2] | tojson(separators=(1, 2)) }}", "{{ [1, 2] | tojson(separators=(',',)) }}", "{{ [1] | tojson(nosuch=1) }}", "{{ tools | tojson }}{{ tools[0].function.parameters.properties.a.maximum }}", "{{ [1] | tojson(indent=true) }}", "{{ [1] | tojson(indent=1.5) }}",
    ],
    "call": [
        "{% macro m(a) %}[{{ a }}|{{ caller() }}]{% endmacro %}{% call m(1) %}body{% endcall %}", "{% macro m(a) %}{% for x in a %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, n=0) m(['a', 'b']) %}<{{ x }}{{ n }}>{% endcall %}", "{% macro m() %}{{ caller(b=2) }}{% endmacro %}{% call(a='d', b='e') m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}x{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ caller() }}{% endmacro %}{% call m() %}{{ v }}{% endcall %}", "{% macro a() %}({{ caller() }}){% endmacro %}{% macro b() %}<{% call a() %}{{ caller() }}{% endcall %}>{% endmacro %}{% call b() %}x{% endcall %}", "{% macro a() %}({{ caller() }}){% endmacro %}{% macro b() %}{% set c = caller %}<{% call a() %}{{ c() }}{% endcall %}>{% endmacro %}{% call b() %}x{% endcall %}", "{% for i in [1, 2] %}{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ i }}{{ loop.last }}{% endcall %}{% endfor %}", "{% macro m() %}{{ caller }}{% endmacro %}{% call m() %}{% endcall %}", "{% call 1 %}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %}", "{% call('a') m() %}{% endcall %}", "{% macro m() %}{{ caller.name }}{{ caller.arguments }}{% endmacro %}{% call(x) m() %}{% endcall %}", "{{ caller is defined }}{{ kwargs is defined }}",
    ],
    "macros": [
        "{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=9) }}{{ m(*[7, 8]) }}{{ m(*[7], **{'b': 5}) }}{{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 'a', x=2) }}{{ m() }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m() }}", "{% macro m(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ m(1, b=2) }}{{ m(a=3) }}", "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m(1, b=2) }}", "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "{% macro m(a, b=b) %}{{ b }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}", "{{ m is defined }}{% macro m(a) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}{{ m }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}", "{% macro m(x) %}{% set x = x ~ '!' %}{{ x }}{% endmacro %}{{ m('a') }}{{ x is defined }}", "{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}", "{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}", "{% macro m() %} x {% endmacro %}{{ m() | trim }}{{ m().strip() | upper }}", "{% macro m(a='é', b=[1]) %}{{ a ~ b }}{% endmacro %}{{ [1, 2] | map('string') | join }}{{ m() }}",
    ],
    "numbers": [
        "{{ 1e308 | round(2, 'ceil') }}", "{{ -1e308 | round(16, 'floor') }}",
        "{{ -2**2 }}", "{{ 2**-1 }}", "{{ 2**3**2 }}", "{{ 2 ** 0.5 }}{{ 1.5 ** 2 }}{{ 4 ** 0.5 }}{{ 0 ** 0 }}{{ (-1) ** 3 }}{{ (-2) ** -2 }}{{ true ** 2 }}", "{{ 2 ** 64 }}{{ 10 ** 30 }}{{ 2 ** 64 - 2 ** 64 + 1 }}{{ (2 ** 70) // 3 }}{{ (2 ** 70) % 1000 }}{{ -(2 ** 70) // 7 }}{{ 2 ** 70 / 2 ** 69 }}{{ 2 ** 70 == 2.0 ** 70 }}{{ 2 ** 53 + 1 == 2.0 ** 53 }}{{ 2 ** 100 > 1e30 }}", "{{ 0 ** -1 }}", "{{ 2 ** 'a' }}", "{{ 9223372036854775807 + 1 }}{{ -9223372036854775808 - 1 }}{{ 3037000500 * 3037000500 }}{{ 12345678901234567890123 }}", "{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1_000 }}{{ 1_0.5_0 }}{{ 00 }}{{ 1e3 }}{{ 1.5E-3 }}", "{{ 2 * 3 ** 2 }}{{ 2 ** 3 * 2 }}{{ -2 ** 2 * 2 }}{{ 2 ** -1 ** 2 }}", "{{ 7 // -2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 7.5 // 2 }}{{ 1 / 3 }}{{ 6 / 3 }}{{ true + true }}{{ -true }}{{ +false }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}",
        "{{ '42' | int }}{{ ' 4_2 ' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ '3.9' | int }}{{ -3.9 | int }}{{ '0x1f' | int(0, 16) }}{{ '1f' | int(base=16) }}{{ '101' | int(base=2) }}{{ none | int }}{{ [1] | int(default=5) }}{{ true | int }}{{ '1e3' | int }}{{ '' | int }}{{ '+5' | int }}{{ '--5' | int }}", "{{ missing | int }}", "{{ '1.5' | float }}{{ 'x' | float }}{{ 'x' | float(2.5) }}{{ 3 | float }}{{ '1e3' | float }}{{ ' 2 ' | float }}{{ none | float }}", "{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 2.5 | round(method='floor') }}{{ 2.21 | round(1, 'ceil') }}{{ 5 | round }}{{ 5 | round(2) }}{{ 7 | round(method='ceil') }}{{ -2.5 | round }}", "{{ 'a' | round }}", "{{ 1 | round(method='x') }}", "{{ -5 | abs }}{{ (-5) | abs }}{{ (-1.5) | abs }}{{ true | abs }}", "{{ 'a' | abs }}", "{{ 5 is divisibleby 5 }}{{ 5 is divisibleby(3) }}{{ 3 is odd }}{{ 4 is even }}{{ 2.0 is even }}{{ true is odd }}", "{{ 'a' is odd }}",
        "{{ 1 < 2.5 }}{{ 1 == 1.0 }}{{ 1 == true }}{{ 'a' < 'b' }}{{ 2 > 1 > 0 }}{{ 1 < 3 < 2 }}{{ none == none }}{{ none == missing }}{{ 1 == '1' }}", "{{ none < 1 }}", "{{ 'a' < 1 }}", "{{ 1 is number }}{{ 1.5 is number }}{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ '1' is number }}{{ 1 is gt 0 }}{{ 1 is greaterthan 1 }}{{ 1 is lessthan 2 }}{{ 1 is sameas true }}{{ none is sameas none }}{{ true is sameas true }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'x' is filter }}",
    ],
    "subscripts": [
        "{{ messages.0.role }}{{ messages.1.content.1 }}{{ messages.99 is defined }}{{ {'0': 1}.0 is defined }}{{ {0: 1}.0 }}", "{{ messages.2.tool_calls.0.function.name }}", "{{ (1, 2).1 }}{{ 'abc'.1 }}{{ [[1, 2]].0.1 }}", "{{ none.0 is defined }}{{ 5.0.x is defined }}", "{{ missing.0 }}", "{{ [1, 2, 3][-1] }}{{ [1][5] is defined }}{{ [1][-5] is defined }}{{ 'abc'[-1] }}{{ [1]['a'] is defined }}{{ [1, 2][true] }}", "{{ 'héllo'[1:3] }}{{ 'abc'[::-1] }}{{ [1, 2, 3][:-1] }}{{ (1, 2, 3)[1:] }}{{ 'abc'[5:] }}|{{ 'abc'[:none] }}{{ [1, 2, 3, 4][::2] }}{{ [1, 2, 3][5:0:-2] }}", "{{ [1][::0] }}", "{{ {(1, 2): 3}[1, 2] }}",
    ],
    "blocks": [
        "{% filter upper %}a{{ 1 }}b{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}{% set n | trim | length %} ab {% endset %}{{ n + 1 }}", "{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set a = 1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}", "a{% raw %}{{ x }}{% if %}{# c #}{% endraw %}b", "a\n  {%- raw -%}\n {{ x }} \n {%- endraw -%} \n b", "  {% raw %}\n {{ x }}\n  {% endraw %}\nb", "{% raw %}", "x\n  {# c #}  \n  {% if true %}\n  y\n  {% endif %}\n z",
        "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}{% for a, in [(1,)] %}{{ a }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d), e = (3, 4), 5 %}{{ c }}{{ d }}{{ e }}", "{% set a, b = [1] %}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}{% if x is number %}{{ x }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "{% for x in [{'a': [{'a': []}]}] recursive %}<{{ loop.depth0 }}{{ loop(x.a) }}>{% else %}-{% endfor %}",
        "{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}", "{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}{{ loop.last }}{{ loop.nextitem }}{{ loop.length }};{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1] %}{{ loop }}{{ loop | length }}{{ loop.nosuch is defined }}{{ loop is iterable }}{{ loop is sequence }}{{ loop is callable }}{% endfor %}", "{% for x in [1, 2] %}{% for y in [3] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}{{ loop is defined }}", "{% for x in [] %}a{% else %}b{% endfor %}{% for x in missing %}a{% else %}b{% endfor %}{% for x in [1] if false %}a{% else %}b{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% if x == 3 %}{% break %}{% endif %}{% else %}e{% endfor %}", "{% for x in [1] %}{% break %}{% else %}e{% endfor %}",
        "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}", "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}", "{% set loop = 1 %}{{ loop }}", "{% generation %}a{% endgeneration %}{% for x in [1, 2] %}{% generation %}{{ x }}{% if x == 1 %}{% endif %}{% endgeneration %}{% endfor %}", "{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% macro m() %}{% generation %}{{ caller() }}{% endgeneration %}{% endmacro %}{% call m() %}x{% endcall %}", "{% macro m() %}{% generation %}{{ kwargs }}{{ varargs }}{% endgeneration %}{% endmacro %}{{ m() }}", "{% for x in [1] %}{% generation %}{{ x }}{{ loop.last }}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}{% endfor %}", "{{ 1 if true }}{{ 1 if false }}{{ (1 if false) is defined }}{{ 1 if false else 2 if false else 3 }}", "{{ 'a' 'b' }}{{ 'a\\x41\\u00e9\\101\\q' }}{{ \"a'b\" }}", "{{ 1, 2 }}{{ () }}{{ (1,) }}{{ [1, ] }}{{ {'a': 1, } }}", "{{ not true or true }}{{ not (true and false) }}{{ 1 and 0 or 'x' }}{{ '' or none }}{{ 1 not in [2] }}{{ not 1 in [2] }}", "{{ é is defined }}{% set ñ1 = 2 %}{{ ñ1 }}", "{{ [1, 2] is iterable }}{{ 1 is iterable }}{{ 'a' is iterable }}{{ missing is iterable }}{{ {} is mapping }}{{ [] is sequence }}{{ {} is sequence }}{{ none is none }}{{ raise_exception is callable }}{{ 1 is callable }}{{ missing is callable }}", "{{ 1 is in [1] }}{{ 'a' is eq 'a' }}{{ 1 is ne 2 }}{{ 1 is not none }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 'a' is in('abc') }}", "{{ (messages | first).role }}{{ ('a' | upper)[0] }}",
    ],
    "filters": [
        "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n\\nc' | indent(2, true) }}|{{ 'a\\n\\nb' | indent('>', blank=true) }}|{{ '' | indent(2, first=true) }}|{{ 'a\\n' | indent(width=1) }}", "{{ none | indent }}", "{{ 'hello big world of words' | truncate(10) }}|{{ 'hello big world of words' | truncate(10, true) }}|{{ 'hello big world' | truncate(12) }}|{{ 'hello big world of' | truncate(9, end='…', leeway=0) }}|{{ 'hello world x' | truncate(5, leeway=0) }}", "{{ 'abc' | truncate(2) }}", "{{ 'a b-c d_e é' | wordcount }}{{ '' | wordcount }}", "{{ 'a b/c?é&~' | urlencode }} {{ {'a b': 'c/d', 'e': 1} | urlencode }} {{ [('a', 1)] | urlencode }} {{ 5 | urlencode }}", "{{ missing | default('x') }}{{ none | default('x') }}{{ none | default('x', true) }}{{ '' | d('y', boolean=true) }}{{ missing | default }}|{{ 0 | default(1, true) }}{{ missing | default(default_value=3) }}", "{{ missing | length }}{{ missing | upper }}{{ missing | list }}{{ missing | join }}{{ missing | first }}{{ missing | string }}", "{{ none | length }}", "{{ none | upper }}{{ none | string }}{{ [1, 'a'] | string | length }}{{ true | lower }}{{ 1.0 | string }}", "{{ 'a' | nosuch }}", "{{ 'a' | nosuch if false else 'b' }}", "{% if false %}{{ 'a' | nosuch }}{% endif %}x", "{% if false %}{% for a in [1] %}{{ 'a' | nosuch }}{% endfor %}{% endif %}x", "{% macro m() %}{{ 1 is nosuch }}{% endmacro %}x", "{% if 1 is nosuch %}{% endif %}", "{% if false and 1 is nosuch %}{% endif %}x", "{{ 'a' | upper | lower ~ 'B' | lower }}{{ -1 | abs }}{{ 'a' ~ 1 | string }}", "{{ [3, 4] | list | first | string | length }}",
    ],
    "repr": [
        "{{ ['a\\'b', 'a\"b', 'a\\'\"', 'é\\n\\t\\x00\\x7f\\xa0\\u200b\\u2028🙂\\\\'] }}", "{{ [1.0, 1e16, 1e-5, 123456789.123, -0.0, 1e100, 2.5e-8] }}", "{{ [none, true, missing, (1,), (), {}, [], {'a': (1, 2)}] }}", "{{ messages[2] }}", "{{ messages[4] }}", "{{ tools }}",
    ],
    "dates": [
        "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{{ strftime_now('%d %b %Y, %B %A %a %y %I %p %j %e %-d %-m %-I %-H %w %u %F %T %D %R %% %h') }}", "{{ strftime_now('%c|%x|%X|%f|%Z%z|%n%t') }}", "{{ strftime_now is defined }}{{ strftime_now('x') }}", "{{ strftime_now() }}", "{{ strftime_now(1) }}",
    ],
    "empty, null and absent": [
        "{% for m in messages %}{{ m.content }}|{{ m.content is defined }}|{{ m.content is none }}|{{ m.content is string }}|{{ 'content' in m }}|{{ m.content | trim if m.content is defined else 'absent' }};{% endfor %}", "{% for m in messages %}{{ m.name }}|{{ m.name is defined }}|{{ m.name is none }}|{{ m.tool_call_id }}|{{ m.tool_call_id is defined }};{% endfor %}", "{% for m in messages %}{{ m.tool_calls is defined }}{{ m.tool_calls is none }}{{ (m.tool_calls or []) | length }}{{ m.get('tool_calls', 'x') is none }};{% endfor %}", "{% for m in messages %}{{ m | tojson }}{% endfor %}", "{% for m in messages %}{{ m.content or '-' }}{{ m['content'] | default('d') }}{{ m['content'] | default('d', true) }};{% endfor %}", "{{ messages[3].content | trim }}{{ messages[3].content ~ '' }}{{ messages[3].content | string }}{{ messages[3].content | length }}", "{{ messages[4].content | trim }}{{ messages[4].content ~ '' }}{{ messages[4].content | length }}", "{{ messages[3].content + '' }}", "{{ messages[4].content + '' }}", "{{ messages[2].tool_calls[1].function.arguments }}|{{ messages[2].tool_calls[1].function.arguments | tojson }}", "{% for k, v in messages[3].items() %}{{ k }}={{ v }};{% endfor %}",
    ],
}


class Clock(datetime.datetime):
    """Clock is a datetime with a fixed time."""

    @classmethod
    def now(cls, tz=None):
        return NOW


def write_conversations(folder):
    """Render each NAME.jinja with the conversation in NAME.jsonl, and write the text to NAME.txt."""
    for template in sorted(folder.glob("*.jinja")):
        messages = json.loads(template.with_suffix(".jsonl").read_text())["messages"]
        texts, _ = render_jinja_template([messages], chat_template=template.read_text(), **TOKENS)
        template.with_suffix(".txt").write_text(texts[0])


def main():
    chat_template_utils.datetime = Clock
    vectors = []
    for name, templates in FEATURES.items():
        for template in templates:
            vector = {"name": name, "template": template}
            try:
                texts, _ = render_jinja_template([CHAT], tools=TOOLS, chat_template=template, **TOKENS)
                vector["text"] = texts[0]
            except Exception as error:  # any type means that the template refused
                vector["error"] = type(error).__name__
            vectors.append(vector)
    with open(sys.argv[1] + "/features.json", "w") as file:
        lines = ",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors)
        head = json.dumps({"now": NOW.isoformat() + "Z", "tokens": TOKENS, "messages": CHAT, "tools": TOOLS}, ensure_ascii=False, indent=1)
        file.write(head.removesuffix("\n}") + ',\n "vectors": [\n' + lines + "\n]\n}\n")
    write_conversations(pathlib.Path(sys.argv[1]) / "conversations")
    print(len(vectors), "vectors,", sum("error" in v for v in vectors), "of them errors")


main()
