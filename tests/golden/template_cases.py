#!/usr/bin/env python3
"""Makes template_cases.json: templates, contexts, and the results of jinja2 as transformers sets it up.

    python3 tests/golden/template_cases.py

Needs jinja2 and transformers. The small cases are below, one construct each, in groups; whole
templates in the style of published models are in template_models.py. Nothing here depends on the
time or on addresses, so that a second run writes the same file."""
import json
import os

from template_env import render
from template_models import CONVERSATIONS, OPTIONS, TEMPLATES, model_cases

# Values most small cases use.
CONTEXT = {
    "n": 3,
    "zero": 0,
    "f": 2.5,
    "big": 9007199254740993,
    "t": True,
    "no": False,
    "nil": None,
    "s": "Hello, World",
    "empty": "",
    "u": "Straße été ﬁn ǆ 𝒳 日本語",
    "greek": "ΟΔΥΣΣΕΥΣ ΑΣ",
    "ws": " \t a  b\n c \u00a0\u2003",
    "lines": "one\ntwo\n\nthree\r\nfour",
    "quote": "it's",
    "both": "it's \"x\"",
    "ctl": "a\u0001\t\n\\\u007f\u0085\u200b\ufeff",
    "nul": "a\u0000b",
    "html": "<a href='x'>&\"</a>",
    "l": [3, 1, 2],
    "none_list": [],
    "words": ["banana", "Apple", "cherry", "apple"],
    "mixed": [1, "a", None, 2.5, True, [1], {"k": 1}],
    "nested": [[1, 2], [3, 4]],
    "pairs": [["a", 1], ["b", 2]],
    "d": {"b": 1, "a": 2, "C": 3},
    "deep": {"x": {"y": {"z": [10, 20, {"w": "end"}]}}},
    "clash": {"items": "I", "keys": 5, "get": "g", "name": "n"},
    "users": [
        {"name": "bob", "age": 30, "city": "Rome", "admin": True, "address": {"zip": 2}},
        {"name": "Al", "age": 25, "city": "paris", "admin": False, "address": {"zip": 1}},
        {"name": "cy", "age": 30, "city": "Paris", "address": {}},
    ],
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yo", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "tool", "content": "42"},
    ],
}

GROUPS = {}


def group(name, text):
    """Cases one a line; `⏎` stands for a newline in the template. All are rendered with CONTEXT."""
    cases = GROUPS.setdefault(name, [])
    for line in text.strip("\n").split("\n"):
        if line.strip():
            cases.append(line.replace("⏎", "\n"))


group("literals", r"""
{{ 1 }} {{ 0 }}
{{ 1.0 }} {{ 1.5e3 }} {{ 1e5 }} {{ 1E-5 }} {{ 2e16 }} {{ 007.5 }}
{{ 123456789012345678 }} {{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ 0.1 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 100.0 }} {{ 1e15 }} {{ 1e16 }} {{ 123456789.123 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {{ 1e21 }} {{ 2.5 }} {{ -0.0 }} {{ 1e100 }}
{{ 'a' }} {{ "b" }} {{ 'it''s' }} {{ 'a' "b" 'c' }}
{{ 'a\nb' }}|{{ '\t\r\a\b\f\v\\\'\"' }}|{{ '\x41\u0042\U00000043' }}
{{ '\q\d\/' }} {{ 'a\⏎b' }} {{ 'a⏎b' }}
{{ '\x4' }}
{{ '\u12' }}
{{ '\ud800' }}
{{ 'open }}
{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}
{{ [] }} {{ [1, 'a', 2.0, none, true] }} {{ [1,] }} {{ [[1], [2, [3]]] }}
{{ () }} {{ (1,) }} {{ (1, 2) }} {{ (1) }} {{ 1, 2 }} {{ 1, }}
{{ {} }} {{ {'a': 1, 'b': [1]} }} {{ {1: 2, none: 3, 1.5: 4, (1, 2): 5, true: 6} }} {{ {'a': 1, 'a': 2,} }}
{{ {[]: 1} }}
{{ {{}: 1} }}
{{ ['it\'s', 'say "x"', 'both \' and "', 'tab\t', '\x7f', '\u200b', 'é', '\U0001F600'] }}
{{ 'é' }} {{ "日本" }} {{ 'a' 'b'.upper() }}
{{ [1, 2 }}
{{ (1, 2] }}
{{ 1 2 }}
{{ }}
{{ 1.foo }}
{{ 1..real }}
""")

group("text of values", r"""
{{ n }} {{ f }} {{ t }} {{ no }} {{ nil }} {{ s }} {{ l }} {{ d }} {{ mixed }} {{ nested }}
{{ [ctl] }} {{ [quote, both, empty, u] }} {{ [nul] }} {{ nul }}
{{ range(3, 0, -1)|list }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ {}.items() }}
{{ missing }}|{{ [missing] }}|{{ missing ~ 'x' }}
{{ namespace(a=1, b='x') }} {{ namespace() }}
{{ big }} {{ big + 0.0 }} {{ [1.0, 1e300, 0.1] }}
{{ {'a': {'b': (1, 'x')}} }}
{{ (none, true, 1.0)|string }} {{ [none]|join }} {{ d|string|length }}
""")

group("arithmetic", r"""
{{ 1 + 2 }} {{ 5 - 7 }} {{ 3 * 4 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}
{{ 7.5 / 2 }} {{ -7.5 / 2 }} {{ 1e300 * 10 }}
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 100 / 10 / 5 }} {{ -n + 1 }} {{ +n }} {{ - - n }} {{ -(-n) }} {{ -n.__class__ }}
{{ true + 1 }} {{ true * 3 }} {{ -true }} {{ true / 2 }} {{ +true }} {{ false - 1 }}
{{ 1 + 1.0 }} {{ 3 * 0.1 }} {{ 1e16 + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }} {{ 'a' * true }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }} {{ (1,) * 2 }} {{ l + [n] }} {{ l * 2 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ 'a' - 'b' }}
{{ 'a' * 'b' }}
{{ 'a' * 1.0 }}
{{ none + 1 }}
{{ {} + {} }}
{{ -'a' }}
{{ -none }}
{{ +'a' }}
{{ missing + 1 }}
{{ 1 + missing }}
{{ 'a' + missing }}
{{ -missing }}
{{ missing * 2 }}
{{ l + none_list + [[]] }} {{ nil }}
{{ 1 ~ 2 }} {{ 'a' ~ none ~ true ~ 1.5 ~ [1] }} {{ 1 ~ 2 + 3 }} {{ 'x' ~ n * 2 }} {{ n ~ '' ~ missing }}
{{ 1 + 2 ~ 3 }}
{{ 'a' ~ 'b' * 2 ~ 'c' }}
""")

group("comparison and logic", r"""
{{ 1 < 2 }} {{ 1 <= 1 }} {{ 2 > 3 }} {{ 2 >= 3 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 'a' == 'a' }} {{ 'Z' < 'a' }} {{ 'a' < 'ab' }} {{ 'é' > 'z' }}
{{ 1 < 2 }} {{ (1 < 3) == true }} {{ (1 in [1]) == true }}
{{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ l == [3, 1, 2] }} {{ d == {'C': 3, 'a': 2, 'b': 1} }} {{ d == {} }} {{ none == none }} {{ [none] == [none] }}
{{ big == big + 0.0 }} {{ big < 9007199254740992.0 }} {{ big > 9007199254740992.0 }} {{ 1 < 1.5 }} {{ 1e300 > 1 }} {{ -1e300 < 1 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ {} < {} }}
{{ [1] < [[]] }}
{{ missing < 1 }}
{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }} {{ missing == '' }}
{{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in l }} {{ 5 not in l }} {{ 'a' in d }} {{ 'z' in d }} {{ 'Hello' in s }} {{ none in [none] }} {{ 2 in (1, 2) }} {{ 1 in range(3) }} {{ 1.0 in range(3) }} {{ 'x' in missing }} {{ 'a' in d.keys() }} {{ 1 in d.values() }} {{ ('a', 2) in d.items() }} {{ true in l }}
{{ 1 in 'abc' }}
{{ none in 'abc' }}
{{ missing in 'abc' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ [] in d }}
{{ not true }} {{ not 0 }} {{ not '' }} {{ not none }} {{ not [] }} {{ not {} }} {{ not () }} {{ not missing }} {{ not 'a' }} {{ not 0.0 }} {{ not range(0) }} {{ not d.items() }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 2 }} {{ 1 or 2 }} {{ '' or 'x' }} {{ none or [] or 'y' }} {{ missing or 'z' }} {{ 1 and '' }} {{ not 1 or 2 }} {{ not (1 or 2) }} {{ 1 or 1/0 }} {{ 0 and 1/0 }}
{{ 1 == 1 and 2 == 2 or false }} {{ true or false and false }} {{ not true == false }} {{ not 1 in [2] }} {{ 1 not in [2] and true }}
{{ not not 1 }} {{ not none is none }} {{ 'a' if not false }}
{{ 'y' if t else 'n' }} {{ 'y' if no else 'n' }} {{ 'y' if no }}| {{ 1 if 1 else 2 if 1 else 3 }} {{ 1 if 0 else 2 if 0 else 3 }} {{ (1 if 0) is undefined }}
{{ ('y' if no).x }}
{{ ('y' if no) ~ 'x' }}
{{ 'a' if 0 if 1 else 'b' }}
{{ [1 if t else 2, 3] }} {{ {'a': 1 if t else 2} }} {{ (1, 2) if t else 3 }}
{{ 1 if }}
{{ x == }}
{{ 1 === 1 }}
{{ a not b }}
{{ 1 ! 2 }}
""")

group("attributes and items", r"""
{{ d.a }} {{ d['b'] }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 9) }} {{ deep.x.y.z[2].w }} {{ deep['x']['y'].z[0] }} {{ users[0].name }} {{ users[-1]['name'] }} {{ users.0.name }}
{{ l[0] }} {{ l[-1] }} {{ l[true] }} {{ s[0] }} {{ s[-1] }} {{ u[0] }} {{ u[4] }} {{ u[-1] }} {{ (1,2)[1] }} {{ range(5)[2] }} {{ range(5)[-1] }} {{ 'abc'[1] }} {{ [1,2][0] }} {{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ {1: 'x'}[1] }} {{ {1: 'x'}[1.0] }}
{{ d.z }}|{{ d['z'] }}|{{ l[10] }}|{{ l['x'] }}|{{ l[1.0] }}|{{ n.x }}|{{ nil.x }}|{{ s['x'] }}|{{ s[100] }}|{{ d[none] }}|{{ d[[]] }}|{{ 5[0] }}
{{ d.z is undefined }} {{ d.a is defined }} {{ missing.x is defined }}
{{ d.z.y }}
{{ missing.x }}
{{ missing['x'] }}
{{ nil.x.y }}
{{ l[10].x }}
{{ d.z() }}
{{ missing() }}
{{ 5() }}
{{ 'a'() }}
{{ clash['items'] }} {{ clash['keys'] }} {{ clash.name }} {{ clash['get'] }} {{ clash.items()|list }} {{ clash.get('name') }}
{{ d.items is callable }} {{ d['items'] is callable }} {{ s.upper is callable }} {{ d.update is defined }} {{ l.append is defined }} {{ l['append'] is undefined }}
{{ l.append(1) }}
{{ d.update({'x': 1}) }}
{{ l.pop() }}
{{ d.pop('a') }}
{{ l.sort() }}
{{ d.setdefault('a', 1) }}
{{ l.extend([1]) }}
{{ d.clear() }}
{{ l.nothing() }}
{{ s.nothing }}|
{{ l[0:2] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ l[2:0:-1] }} {{ l[:] }} {{ l[-100:100] }} {{ l[none:2] }} {{ l[none:none:none] }} {{ l[true:] }}
{{ s[0:5] }} {{ s[7:] }} {{ s[::-1] }} {{ s[::3] }} {{ s[-5:-1] }} {{ s[100:] }}| {{ s[3:1] }}| {{ u[::-1] }} {{ u[1:6] }} {{ u[-3:] }} {{ u[2:12:3] }} {{ u[12:2:-2] }} {{ (1,2,3)[1:] }} {{ messages[1:]|length }} {{ messages[::-1][0].role }}
{{ l[n:] }} {{ l[:n-1] }} {{ l[-n:-1] }} {{ s[n:n+2] }} {{ s[0:1][0:1] }}
{{ l[::0] }}
{{ l['a':] }}
{{ l[1.0:] }}
{{ d[1:] }}
{{ n[1:] }}
{{ nil[1:] }}
{{ missing[1:] }}
{{ d.items()[0:1] }}
{{ d.items()[0] }}|{{ d.keys()[0] }}|
{{ l[0 }}
{{ l. }}
{{ d.'a' }}
{{ l[1:2:3:4] }}
{{ messages[0]['role'] ~ messages[0].content }} {{ messages[2].tool_calls[0].function.arguments.x }}
{{ users|map(attribute='name')|first }} {{ (users|first).name }} {{ users[0]['address']['zip'] }} {{ 'abc'.upper()[0].lower() }}
{{ namespace(a=1).a }} {{ namespace(a=1)['a'] }} {{ namespace(a=1).b }}| {{ namespace({'x': 5}).x }}
{{ namespace(_a=1) }}
""")

group("methods of str", r"""
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ 'hello wORLD'.capitalize() }} {{ "they're bill's".title() }}
{{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ u.capitalize() }} {{ greek.lower() }} {{ 'İ'.lower()|length }} {{ 'ŉ'.upper() }}
[{{ ws.strip() }}] [{{ ws.lstrip() }}] [{{ ws.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'xyaxy'.lstrip('yx') }}] [{{ 'aé'.rstrip('é') }}] [{{ '<think>'.strip('<>') }}] [{{ s.strip(none) }}] [{{ s.strip('') }}]
{{ 'a b  c'.split() }} {{ ws.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ ' a b c '.split(none, 1) }} {{ 'a b'.split(' ', maxsplit=1) }} {{ 'a--b'.split('--') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('x') }} {{ 'a b'.split(sep=' ') }} {{ 'a,b,c'.split(',', 0) }} {{ 'a,b,c'.split(',', -1) }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c'.rsplit() }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a--b--c'.rsplit('--', 1) }} {{ 'abc'.rsplit('x') }} {{ 'a<think>b</think>c'.split('</think>')[-1] }} {{ 'aXXaXXa'.rsplit('XX', 5) }}
{{ 'a'.split('') }}
{{ 'a'.split(1) }}
{{ 'a'.strip(1) }}
{{ 'a'.split(',', 'x') }}
{{ 'a'.split(',', foo=1) }}
{{ lines.splitlines() }} {{ 'a\n'.splitlines() }} {{ ''.splitlines() }} {{ 'a\r\nb\rc\x0bd\x1ce\x85f\u2028g'.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\nb'.splitlines(keepends=true) }}
{{ s.startswith('Hello') }} {{ s.startswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('World') }} {{ s.endswith(('x', 'd')) }} {{ s.startswith('') }} {{ s.endswith('') }} {{ s.startswith(()) }}
{{ s.startswith(1) }}
{{ s.startswith(['H']) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '-') }} {{ s.replace('xyz', '') }} {{ 'é'.replace('', '.') }} {{ 'aaa'.replace('a', 'aa', 2) }} {{ 'aaa'.replace('', 'x', 2) }} {{ 'aaa'.replace('a', 'b', -1) }} {{ ''.replace('', 'x') }} {{ ''.replace('', 'x', 0) }}
{{ s.replace('l', 1) }}
{{ s.replace('l') }}
{{ s.replace(old='l', new='L') }}
{{ s.find('o') }} {{ s.find('x') }} {{ s.rfind('o') }} {{ u.find('é') }} {{ u.rfind('é') }} {{ s.find('') }} {{ s.rfind('') }}
{{ ','.join(['a', 'b']) }} {{ ''.join([]) }} {{ ', '.join(words) }} {{ '-'.join('abc') }} {{ ','.join(d) }} {{ ','.join(d.keys()) }} {{ ' '.join(words|map('upper')) }} {{ ','.join(('x',)) }}
{{ ','.join([1]) }}
{{ ','.join(5) }}
{{ ','.join([missing]) }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removeprefix('x') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removesuffix('') }}
{{ 'a'.upper(1) }}
{{ 'a'.strip('a', 'b') }}
{{ s.split(', ')[0].upper().lower()|length }} {{ s.upper().lower().title() }}
{{ d.get() }}
{{ d.get([]) }}
{{ d.get('a', default=1) }}
{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d.items()|length }} {{ d.keys()|first }} {{ d.values()|sum }}
""")

group("format", r"""
{{ '%s and %s' % ('a', 1) }} {{ '%d' % 5 }} {{ '%s' % 'x' }} {{ '%s' % none }} {{ '%s' % [1] }} {{ '100%%' % () }}
{{ 'x' % {} }} {{ 'x' % [1] }} {{ 'x' % () }} {{ '%d' % 3.99 }} {{ '%d' % true }} {{ '%s' % true }} {{ '%s' % (missing,) }} {{ 'a%s' % missing }}
{{ '%s' % () }}
{{ '%s' % (1, 2) }}
{{ '%d' % 'a' }}
{{ 'x' % 1 }}
{{ '%' % 1 }}
{{ '{} {}'.format('a', 1) }} {{ '{{}}'.format() }} {{ '{}'.format(none) }} {{ '{}'.format([1]) }} {{ '{}'.format(1.0) }} {{ '{}'.format(true) }}
{{ '{}'.format() }}
{{ '{'.format() }}
{{ '}'.format() }}
""")

group("tests", r"""
{{ 1 is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.z is not defined }} {{ none is defined }} {{ none is none }} {{ 0 is none }} {{ missing is none }}
{{ 'a' is string }} {{ 1 is string }} {{ missing is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ 'a' is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ 1 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false }}
{{ d is mapping }} {{ l is mapping }} {{ d is iterable }} {{ l is iterable }} {{ s is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ range(1) is iterable }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ 1 is sequence }} {{ none is sequence }} {{ missing is sequence }} {{ (1,) is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ range(3) is sequence }} {{ l|map('string') is iterable }} {{ l|map('string') is sequence }} {{ namespace() is mapping }} {{ namespace() is iterable }} {{ namespace() is sequence }}
{{ 3 is odd }} {{ 3 is even }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ -3 is odd }} {{ true is odd }}
{{ 'a' is odd }}
{{ none is odd }}
{{ 1 is divisibleby 0 }}
{{ 1 is divisibleby }}
{{ missing is odd }}
{{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 1 is gt 2 }} {{ 1 is ge 1 }} {{ 1 is equalto 1 }} {{ 1 is lessthan 2 }} {{ 1 is greaterthan(2) }} {{ 1 is in [1] }} {{ 1 is not in [2] }} {{ 'a' is in 'abc' }} {{ 'a' is in d }} {{ 1 is sameas 1 }} {{ true is sameas true }} {{ true is sameas 1 }} {{ none is sameas none }} {{ l is sameas l }} {{ l is sameas [3,1,2] }} {{ [] is sameas [] }} {{ d.a is sameas d.a }}
{{ range is callable }} {{ 1 is callable }} {{ s.upper is callable }} {{ missing is callable }} {{ namespace is callable }} {{ raise_exception is callable }} {{ dict is callable }} {{ d is callable }}
{{ 1 is not none }} {{ none is not none }} {{ not 1 is none }} {{ 1 is defined and 2 is defined }} {{ missing is defined or 1 }} {{ 'x' if missing is defined else 'y' }} {{ 1 + 1 is eq 2 }} {{ -1 is lt 0 }} {{ [1] is sequence and s is string }} {{ l|length is eq 3 }} {{ 1 is defined is true }}
{{ 1 is nothing }}
{{ 1 is lt 'a' }}
{{ 1 is in 5 }}
{{ 1 is eq }}
{{ 1 is defined(1) }}
{{ 1 is defined 1 }}
{% if false %}{{ 1 is nothing }}{% endif %}ok
{% if true %}{{ 1 is nothing }}{% endif %}ok
{{ 1 if true else 1 is nothing }}
{% if false %}{% for x in l %}{{ 1 is nothing }}{% endfor %}{% endif %}ok
{{ l is sameas(other=l) }} {{ 1 is eq(1) }} {{ 9 is divisibleby(num=3) }}
{{ 1 is }}
{{ 1 is is }}
""")

group("filters on text", r"""
{{ s|upper }} {{ s|lower }} {{ s|capitalize }} {{ 'hello-world (foo) [bar] <baz> {x}'|title }} {{ u|title }} {{ u|upper }} {{ greek|lower }} {{ 5|upper }} {{ none|lower }} {{ missing|upper }}| {{ "it's ǆ"|title }}
[{{ ws|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ 5|trim }}] [{{ missing|trim }}] [{{ 'abc'|trim(chars='ac') }}] [{{ none|trim }}]
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 515|replace(5, 'x') }} {{ s|replace('o', none) }} {{ missing|replace('a', 'b') }}| {{ s|replace('l', 'x', none) }} {{ s|replace(old='o', new='0', count=1) }}
{{ s|replace('a') }}
{{ s|replace('l', 'L', 'x') }}
{{ lines|indent }}|{{ lines|indent(2) }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, true, true) }}|{{ lines|indent('> ') }}|{{ lines|indent(first=true, width=1) }}|{{ ''|indent }}|{{ 'a\n'|indent }}|{{ 'a\r'|indent }}|{{ 'a\n\nb'|indent(blank=true) }}|{{ ''|indent(first=true) }}|{{ 'x\n\n'|indent(2, blank=true) }}|
{{ 5|indent }}
{{ missing|indent }}
{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ ''|length }} {{ range(4)|length }} {{ missing|length }} {{ l|count }} {{ (1,2)|count }} {{ '日本'|length }} {{ nul|length }}
{{ 5|length }}
{{ none|length }}
{{ l|map('string')|length }}
{{ s|string }} {{ 5|string + 'x' }} {{ none|string }} {{ missing|string }}| {{ l|string }}
{{ html|e }} {{ html|escape }} {{ html|safe }} {{ html|e|e }} {{ 5|e }} {{ missing|e }}| {{ ('<'|e) + '<' }} {{ '<' + ('<'|safe) }} {{ ('<'|safe) ~ '<' }} {{ ('<'|safe)|upper + '>' }} {{ ['<'|safe] }} {{ ('<a>'|safe)[0] + '<' }} {{ ('<a>'|safe)[1:] + '<' }} {{ ('<'|safe) * 2 + '<' }} {{ ('<'|safe)|trim + '<' }} {{ ('<'|safe)|string + '<' }} {{ ('<'|safe)|replace('<', '>') + '<' }} {{ ('<'|safe) == '<' }} {{ ['<'|safe, '<']|join }}
{{ 'a'|default('b') }} {{ missing|default('b') }} {{ missing|default }}| {{ ''|default('b') }}| {{ ''|default('b', true) }} {{ none|default('b') }} {{ none|d('b', true) }} {{ 0|default(1, boolean=true) }} {{ missing|default(l) }} {{ d.z|default(d.a) }} {{ missing|default(default_value='q') }}
{{ missing.x|default('b') }}
{{ '5'|int }} {{ '5.9'|int }} {{ 5.9|int }} {{ -5.9|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ none|int }} {{ true|int }} {{ ' 12 '|int }} {{ '1_000'|int }} {{ '012'|int }} {{ '1e3'|int }} {{ 'inf'|int(3) }} {{ 'nan'|int(3) }} {{ []|int(1) }} {{ '-7'|int }} {{ '+7'|int }} {{ ''|int }} {{ '1__0'|int }} {{ '_1'|int }} {{ '1_'|int }} {{ 'x'|int(default='q') }}
{{ missing|int }}
{{ ('inf'|float)|int }}
{{ '5'|float }} {{ '1e3'|float }} {{ 5|float }} {{ 'x'|float }} {{ 'x'|float(1) }} {{ none|float }} {{ true|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ ' 1.5 '|float }} {{ '1_0.5'|float }} {{ '0x10'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ '1__0'|float }} {{ '1e'|float }}
{{ missing|float }}
{{ 5|abs }} {{ -5|abs }} {{ -5.5|abs }} {{ true|abs }} {{ (-0.0)|abs }} {{ -n|abs }}
{{ 'a'|abs }}
{{ missing|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 42.55|round(1) }} {{ 2.675|round(2) }} {{ 42|round }} {{ -2.5|round }} {{ 0.5|round }} {{ 1.5|round|int }} {{ true|round }} {{ 1e20|round(2) }} {{ 5.015|round(2) }}
{{ 'a'|round }}
{{ missing|round }}
{{ s|nothing }}
{% if false %}{{ s|nothing }}{% endif %}ok
{% if true %}{{ s|nothing }}{% endif %}
{{ 'a' if true else s|nothing }}
{% macro m() %}{{ s|nothing }}{% endmacro %}ok
{{ s|upper(1) }}
{{ s|upper(x=1) }}
{{ s|default(1, 2, 3) }}
{{ s|indent(width=1, width=2) }}
{{ s|lower|upper|title|trim|length }}
{{ s| }}
{{ s|5 }}
{{ s|upper.lower }}
{{ 1|string|int + 1 }} {{ -1|abs }} {{ 2 * 3|string }} {{ 'a' ~ 1|string }} {{ (1 + 2)|string }} {{ not ''|length }}
""")

group("filters on lists", r"""
{{ l|first }} {{ l|last }} {{ s|first }} {{ u|last }} {{ d|first }} {{ d|last }} {{ none_list|first }}| {{ none_list|last }}| {{ ''|first }}| {{ missing|first }}| {{ range(3)|last }} {{ (1,2)|last }} {{ d.items()|first }} {{ d.items()|last }} {{ l|map('string')|first }}
{{ none_list|first is undefined }}
{{ none|first }}
{{ l|map('string')|last }}
{{ l|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ d|reverse|list }} {{ range(3)|reverse|list }} {{ l|map('string')|reverse }} {{ missing|reverse|list }} {{ (1,2)|reverse|list }}
{{ 5|reverse }}
{{ l|reverse|length }}
{{ l|list }} {{ s|list }} {{ d|list }} {{ d.items()|list }} {{ d|items|list }} {{ missing|list }} {{ range(3)|list }} {{ u|list }} {{ missing|items|list }}
{{ 5|list }}
{{ none|list }}
{{ l|items|list }}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}
{{ l|join }} {{ l|join(', ') }} {{ users|join(', ', attribute='name') }} {{ s|join('-') }} {{ d|join(',') }} {{ mixed|join('|') }} {{ none_list|join }}| {{ missing|join }}| {{ l|join(1) }} {{ [missing, 1]|join(',') }} {{ l|join(d=';') }} {{ users|join(',', 'address.zip') }}
{{ 5|join }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ words|sort(true) }} {{ users|sort(attribute='name')|map(attribute='name')|list }} {{ users|sort(attribute='age,name')|map(attribute='name')|list }} {{ users|sort(reverse=true, attribute='age')|map(attribute='name')|list }} {{ d|sort }} {{ s|sort|join }} {{ [2.5, 1, true]|sort }} {{ nested|sort(attribute=1, reverse=true) }} {{ missing|sort }} {{ [(2, 'a'), (1, 'b')]|sort }} {{ pairs|sort(attribute='1', reverse=true) }}
{{ mixed|sort }}
{{ [none, 1]|sort }}
{{ users|sort }}
{{ users|sort(attribute='nope') }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='value') }} {{ d|dictsort(reverse=true) }} {{ d|dictsort(false, 'value', true) }} {{ {}|dictsort }}
{{ d|dictsort(by='x') }}
{{ l|dictsort }}
{{ ['b','a','B','A','b']|unique|list }} {{ ['b','a','B']|unique(true)|list }} {{ [1, 1.0, true, 2]|unique|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }} {{ missing|unique|list }} {{ 'abca'|unique|join }}
{{ [[1], [1]]|unique|list }}
{{ l|min }} {{ l|max }} {{ words|min }} {{ words|max }} {{ words|max(case_sensitive=true) }} {{ (users|min(attribute='age')).name }} {{ (users|max(attribute='age')).name }} {{ none_list|min }}| {{ s|max }} {{ d|min }} {{ [2, 1.5]|min }} {{ ['a','A']|min }} {{ missing|max }}|
{{ mixed|min }}
{{ 5|min }}
{{ l|sum }} {{ l|sum(start=10) }} {{ users|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ none_list|sum }} {{ nested|sum(start=[]) }} {{ missing|sum }} {{ [true, true]|sum }} {{ users|sum('age', 1) }}
{{ words|sum }}
{{ ['a']|sum(start='') }}
{{ users|map(attribute='name')|list }} {{ users|map(attribute='address.zip', default='-')|list }} {{ users|map(attribute='nope')|list }} {{ users|map(attribute='nope', default=0)|list }} {{ words|map('upper')|join(',') }} {{ words|map('replace', 'a', 'x')|list }} {{ nested|map('first')|list }} {{ nested|map(attribute=1)|list }} {{ nested|map(attribute='0')|list }} {{ nested|map('join', '-')|list }} {{ l|map('string')|map('length')|list }} {{ missing|map('upper')|list }} {{ none_list|map('nope')|list }} {{ pairs|map('last')|sum }} {{ l|map('default', 'x')|list }} {{ ['1', 'x']|map('int', default=9)|list }} {{ users|map(attribute='name')|map('upper')|join }}
{{ l|map('nope')|list }}
{{ l|map|list }}
{{ l|map(attribute='x', foo=1)|list }}
{{ l|map(missing)|list }}
{{ l|map(5)|list }}
{{ 5|map('upper')|list }}
{{ users|map(attribute='address.zip.x')|list }}
{% set g = l|map('nope') %}ok
{{ l|select|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ l|select('odd')|list }} {{ l|select('gt', 1)|list }} {{ l|select('>', 1)|list }} {{ l|select('==', 1)|list }} {{ l|select('in', [1, 2])|list }} {{ words|select('equalto', 'Apple')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', 'a']|reject|list }} {{ mixed|select('string')|list }} {{ mixed|reject('none')|list }} {{ [missing, 1]|select('defined')|list }} {{ l|select('divisibleby', 2)|list }} {{ missing|select('odd')|list }}
{{ l|select('nope')|list }}
{{ l|select('odd', 1, 2)|list }}
{{ words|select('odd')|list }}
{{ users|selectattr('admin')|map(attribute='name')|list }} {{ users|rejectattr('admin')|map(attribute='name')|list }} {{ users|selectattr('age', 'eq', 30)|map(attribute='name')|list }} {{ users|selectattr('name', 'in', ['bob', 'cy'])|list|length }} {{ users|selectattr('admin', 'defined')|list|length }} {{ users|selectattr('nope', 'undefined')|list|length }} {{ users|rejectattr('age', 'lt', 30)|map(attribute='name')|join(',') }} {{ users|selectattr('address.zip', 'defined')|list|length }} {{ messages|selectattr('role', 'equalto', 'user')|list }} {{ messages|rejectattr('role', '==', 'system')|map(attribute='role')|list }} {{ (messages|selectattr('role', 'equalto', 'tool')|list)|length > 0 }} {{ nested|selectattr(0, 'gt', 1)|list }}
{{ users|selectattr|list }}
{{ users|selectattr('age', 'nope')|list }}
{{ [3,1,2]|sort|reverse|list|first }} {{ d.items()|sort }} {{ d.items()|map('first')|join }} {{ d.values()|max }} {{ d|map('upper')|list }} {{ l|sort|join('<') }}
""")

group("tojson", r"""
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ n|tojson }} {{ f|tojson }} {{ t|tojson }} {{ nil|tojson }} {{ mixed|tojson }} {{ {}|tojson }} {{ []|tojson }} {{ (1, 'a')|tojson }} {{ ()|tojson }} {{ u|tojson }} {{ html|tojson }} {{ both|tojson }} {{ ctl|tojson }} {{ nul|tojson }} {{ 1e16|tojson }} {{ 1.0|tojson }}
{{ users|tojson }}
{{ deep|tojson(indent=2) }}
{{ deep|tojson(indent=4) }}|{{ {'a': [], 'b': {}, 'c': [[]]}|tojson(indent=2) }}|{{ l|tojson(indent='\t') }}|{{ l|tojson(indent=0) }}|{{ l|tojson(indent=-1) }}|{{ l|tojson(indent=true) }}|{{ []|tojson(indent=2) }}|{{ l|tojson(indent=none) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(separators=(', ', ' : ')) }} {{ d|tojson(indent=1, separators=(';', '=')) }} {{ u|tojson(ensure_ascii=true) }} {{ u|tojson(true) }} {{ ctl|tojson(ensure_ascii=true) }} {{ {'é': 1}|tojson(true) }} {{ '𝒳'|tojson(true) }} {{ d|tojson(false, 2) }}
{{ {1: 'a', 2.5: 'b', true: 'c', none: 'd'}|tojson }}
{{ {(1, 2): 'a'}|tojson }}
{{ missing|tojson }}
{{ [missing]|tojson }}
{{ range(3)|tojson }}
{{ d.items()|tojson }}
{{ l|map('string')|tojson }}
{{ range|tojson }}
{{ namespace()|tojson }}
{{ l|tojson(indent=[]) }}
{{ l|tojson(foo=1) }}
{{ l|tojson(indent=1.5) }}
{{ l|tojson(separators=1) }}
{{ ('nan'|float)|tojson }} {{ ('inf'|float)|tojson }} {{ (-('inf'|float))|tojson }} {{ {'a': 'x'|safe}|tojson }} {{ 'a/b'|tojson }} {{ '\x7f\x80\u2028'|tojson }} {{ '\b\f\n\r\t\x1f'|tojson }}
{{ messages[2].tool_calls[0].function|tojson }} {{ messages[2].tool_calls[0].function.arguments|tojson|safe }}
{{ d|tojson|length }} {{ '"' ~ (d|tojson) ~ '"' }} {{ (d|tojson)[1:3] }} {{ d|tojson|replace('"', "'") }}
""")

group("white space", r"""
a {% if t %} b {% endif %} c
a⏎{% if t %}⏎b⏎{% endif %}⏎c
a⏎  {% if t %}⏎  b⏎  {% endif %}⏎c
a⏎  {%- if t -%}⏎  b⏎  {%- endif -%}⏎c
a⏎  {%+ if t %}⏎  b⏎  {%+ endif +%}⏎c
a⏎  {{ n }}⏎  b
a⏎  {{- n -}}⏎  b
a⏎  {{+ n }}⏎  b
{{-n}}|{{- n}}| {{-1 }}|{{ -1 }}|{{+1}}
a⏎  {# c #}⏎  b
a⏎  {#- c -#}⏎  b
a⏎  {#+ c +#}⏎  b
a {# {{ x }} {% if %} #} b {#-#} c {##} d
{# unclosed
a⏎⏎⏎{%- if t %}⏎⏎x⏎⏎{%- endif %}⏎⏎b
{% if t %}⏎{% endif %}⏎{% if t %}⏎{% endif %}⏎
a⏎
a⏎⏎
⏎
⏎⏎
a⏎{{ n }}⏎
{{ n }}⏎⏎{{ n }}
  {% if t %}x{% endif %}
x  {% if t %}y{% endif %}
  {{ n }}  {% if t %}y{% endif %}
{% if t %}  {% if t %}x{% endif %}{% endif %}
{% if t %}⏎  {% if t %}x{% endif %}{% endif %}
{% if t -%}⏎  {% if t %}x{% endif %}{% endif %}
{% set a = 1 %}⏎{% set b = 2 %}⏎{{ a }}{{ b }}
	{% if t %}	tab{% endif %}
 {% if t %}nbsp{% endif %}
 {%- if t %}nbsp{% endif %}
{ x } {} { {x} } }} %} #} {
{{ '}}' }} {{ '%}' }} {{ "{{" }} {{ {'a': {'b': 1}} }} {{ {'a': {}} }}
{{ {'a': 1}}}
{% if {'a': 1}['a'] %}x{% endif %}
{{n}}{{n}}
{{ n⏎+⏎1 }}
{%⏎if⏎t⏎%}x{%⏎endif⏎%}
{% if t:%}x{% endif %}
{%if t%}{%else%}{%endif%}
a{%- if t %} b{%- endif %} c
a {%- if t -%} b {%- else -%} c {%- endif -%} d
{%- for x in l -%}⏎ {{ x }} ⏎{%- endfor -%}
{% for x in l %}⏎{{ x }}⏎{% endfor %}⏎end
{% for x in l %}⏎  {% if x %}⏎    {{ x }}⏎  {% endif %}⏎{% endfor %}⏎end
<a>⏎    {%- set x = 1 %}⏎    {{- x }}⏎</a>
{% if t %}é{% endif %}⏎日本⏎  {%- if t %}語{% endif %}
{% if t
{{ n
{{ n }
{% if t %}
{% endif %}
{% if t %}{% endfor %}
{% %}
{% 5 %}
{% unknown %}
{% do l %}
{% trans %}x{% endtrans %}
{{ ( }}
{{ ) }}
{{ 'a' }}}
{{ @ }}
{{ $x }}
{{ `x` }}
{{ a ? b : c }}
{{ x; }}
""")
GROUPS["white space"] += [
    "a\r\nb\r{% if t %}\r\nc{% endif %}\r\n", "a\r", "a\r\n\r\n", "\r\n  {% if t %}x{% endif %}",
    "{{ 'a\r\nb' }}", "\ufeffx", "a\x0b{% if t %}x{% endif %}", "a\u2003{%- if t %}x{% endif %}",
    "x\u2028  {% if t %}y{% endif %}",
]

group("if", r"""
{% if t %}a{% endif %}{% if no %}b{% endif %}
{% if no %}a{% elif t %}b{% else %}c{% endif %}
{% if no %}a{% elif no %}b{% else %}c{% endif %}
{% if no %}a{% elif no %}b{% elif n %}c{% elif t %}d{% else %}e{% endif %}
{% if missing %}a{% else %}b{% endif %}
{% if l and d %}a{% endif %}{% if not l or none_list %}b{% endif %}
{% if n == 3 and s is string %}a{% endif %}
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{% if a, b %}x{% endif %}
{% if t %}{% if no %}a{% else %}b{% endif %}{% endif %}
{% if t %}{% set x = 1 %}{% endif %}{{ x }}
{% if no %}{% set x = 1 %}{% endif %}{{ x }}|{{ x is defined }}
{% if no %}{% set n = 1 %}{% endif %}{{ n }}
{% if no %}{% set n = 1 %}{% else %}{{ n }}{% endif %}{{ n }}
{% if t %}{% set n = n + 1 %}{% endif %}{{ n }}
{{ n }}{% set n = 5 %}{{ n }}
{% set n = n + 1 %}{{ n }}
{% for i in [1] %}{{ n }}{% endfor %}{% set n = 5 %}{{ n }}
{% for i in [1] %}{{ n }}{% endfor %}{% if no %}{% set n = 5 %}{% endif %}{{ n }}
{% if t %}{% for i in [1] %}{% set n = 9 %}{{ n }}{% endfor %}{% endif %}{{ n }}
{% if no %}{% set y = 1 %}{% elif t %}{{ y }}{% set y = 2 %}{% endif %}{{ y }}
{% if t %}{% set y %}block{% endset %}{% endif %}{{ y }}
{% if t %}{% macro m() %}M{% endmacro %}{% endif %}{{ m() }}
{% if no %}{% macro m() %}M{% endmacro %}{% endif %}{{ m is defined }}
{% if %}x{% endif %}
{% if t %}x{% else %}y{% else %}z{% endif %}
{% elif t %}
{% if t else %}x{% endif %}
{% if t %}x{% else if no %}y{% endif %}
""")

group("set", r"""
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}
{% set x = 1, 2 %}{{ x }}{% set a, b = x %}{{ a }}{{ b }}
{% set a, b = b, a %}{{ a }}{{ b }}
{% set (a, b) = (1, 2) %}{{ a }}{{ b }}
{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}
{% set a, b = 'xy' %}{{ a }}{{ b }}
{% set a, b = d.items()|first %}{{ a }}{{ b }}
{% set a, = [1] %}{{ a }}
{% set a, b = [1] %}
{% set a, b = [1, 2, 3] %}
{% set a, b = 5 %}
{% set a, b = missing %}
{% set 1 = 2 %}
{% set 'a' = 2 %}
{% set [a] = 2 %}
{% set true = 2 %}
{% set a.b.c = 2 %}
{% set a[0] = 2 %}
{% set a + b = 2 %}
{% set f(x) = 2 %}
{% set %}
{% set x = %}
{% set x 5 %}
{% set x = 1 if no else 2 %}{{ x }}{% set x = 1 if no %}{{ x }}|
{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}
{% set x | upper %}a{{ s }}b{% endset %}{{ x }}
{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}
{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}|
{% set x %}{% endset %}{{ x is string }}{{ x|length }}
{% set x %}⏎  a⏎{% endset %}[{{ x }}]
{% set a, b %}xy{% endset %}{{ a }}{{ b }}
{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}{% set ns.b = 'new' %}{{ ns.b }}{{ ns }}
{% set ns = namespace() %}{% for i in l %}{% set ns.last = i %}{% endfor %}{{ ns.last }}
{% set ns = namespace(n=0) %}{% for i in l %}{% for k in l %}{% set ns.n = ns.n + i * k %}{% endfor %}{% endfor %}{{ ns.n }}
{% set ns = namespace(a=1) %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x }}{{ ns.y }}
{% set ns = namespace(a=1) %}{% set ns.t %}text{% endset %}{{ ns.t }}
{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}
{% set ns = namespace(d, extra=1) %}{{ ns.a }}{{ ns.extra }}{{ ns.b }}
{% set ns = namespace(a=1) %}{{ 'a' in ns }}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set d.a = 5 %}
{% set missing.a = 5 %}
{% set l.a = 5 %}
{% set nil.a, x = 5, 6 %}
{% set x = [] %}{% set x.y = 1 %}
{% set x = l %}{% set y = x %}{{ x is sameas y }}
{% set x = {'a': 1} %}{{ x.a }}{% set x = dict(x, b=2) %}{{ x }}
{% set _ = l %}{{ _ }}
{% set range = 5 %}{{ range }}
{% set x = x %}{{ x }}|
{% set x = n %}{% set n = 7 %}{{ x }}{{ n }}
{% set é = 1 %}{{ é }}
{% set a1_b = 1 %}{{ a1_b }}
{% set x = 'a' 'b' %}{{ x }}
""")

group("for", r"""
{% for x in l %}{{ x }},{% endfor %}
{% for x in l -%} {{ x }} {%- endfor %}
{% for x in none_list %}a{% else %}b{% endfor %}
{% for x in l %}a{% else %}b{% endfor %}
{% for k in d %}{{ k }}{% endfor %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}
{% for i in range(3) %}{% set x = i %}{% if i == 1 %}{% set x = 'one' %}{% endif %}{{ x }}{% filter upper %}{% set x = 'f' %}{{ x }}{% endfilter %}{{ x }}{% endfor %}{{ x }}|
{% for c in u %}{{ c }}.{% endfor %}
{% for a, b in nested %}{{ a }}-{{ b }};{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for (a, b) in nested %}{{ a }}{{ b }}{% endfor %}
{% for a in nested %}{{ a }}{% endfor %}
{% for a, b in l %}{{ a }}{% endfor %}
{% for a, b, c in nested %}{{ a }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in missing %}a{% else %}b{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}
{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}
{% for x in l %}{{ loop['index'] }}{{ loop.nope }}{{ loop.nope is defined }}{% endfor %}
{% for x in l %}{{ loop(1) }}{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{{ loop.last }};{% endfor %}
{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for x in l if x is odd and x > n - 2 %}{{ x }}{% endfor %}
{% for k, v in d.items() if v > 1 %}{{ k }}{{ loop.revindex }}{{ loop.nextitem }};{% endfor %}
{% for x in messages if x.role == 'user' %}{{ x.content }}{% endfor %}
{% for x in l if loop.index %}{% endfor %}
{% for y in l %}{% for x in l if loop.first %}{{ x }}{% endfor %};{% endfor %}
{% for x in l if x %}{{ x }}{% if loop.nextitem is defined %}{{ loop.nextitem }}{% endif %}{{ x }};{% endfor %}
{% set ns = namespace(n=0) %}{% for x in [1,2,3,4,5] if ns.n < 3 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}
{% set ns = namespace(n=0) %}{% for x in [1,2,3,4,5] if ns.n < 3 %}{{ loop.length }}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}
{% for x in l if y %}{{ x }}{% endfor %}ok
{% for x in (l if t else none_list) %}{{ x }}{% endfor %}
{% for x in l if t else none_list %}{{ x }}{% endfor %}
{% for x in 1, 2, 3 %}{{ x }}{% endfor %}
{% for x in [3,2,1]|sort %}{{ x }}{% endfor %}{% for x in l[::-1] %}{{ x }}{% endfor %}{% for x in words|map('upper') %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for x in l %}{% set outer = loop %}{% for y in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% break %}{% else %}E{% endfor %}
{% for x in l %}{% continue %}{% else %}E{% endfor %}
{% for x in l %}{% if loop.first %}{% continue %}{% endif %}x{% else %}E{% endfor %}
{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }}{% endfor %}
{% for x in l %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}
{% for x in l %}{{ x }}{% set z %}{% break %}{% endset %}{% endfor %}after
{% for x in l %}{% set z %}a{% if x == 1 %}{% continue %}{% endif %}b{% endset %}{{ z }}{{ x }}{% endfor %}
{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{{ x }}{% endfor %}
{% break %}
{% continue %}
{% if t %}{% break %}{% endif %}
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in l %}{% endfor %}{% break %}
{% set x = 9 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}
{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}
{% for i in l %}{% set q = i %}{% endfor %}{{ q }}|
{% for i in l %}{{ q }}{% set q = i %}{% endfor %}
{% for i in l %}{% if q is defined %}D{% endif %}{% set q = i %}{% endfor %}
{% for i in l %}{% if i == 1 %}{% set q = 'x' %}{% endif %}{{ q }}{% endfor %}
{% for i in l %}{% if i == 1 %}{% set n = 'x' %}{% endif %}{{ n }}{% endfor %}
{% set q = 'o' %}{% for i in l %}{% if i == 1 %}{% set q = 'x' %}{% endif %}{{ q }}{% endfor %}{{ q }}
{% for i in l %}{% for k in l %}{% set i = 7 %}{% endfor %}{{ i }}{% endfor %}
{% for loop in l %}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% set loop = 1 %}{{ loop }}
{% set loop = 1 %}{% for x in l %}{{ loop.index }}{% endfor %}{{ loop }}
{% for x, x in nested %}{{ x }}{% endfor %}
{% for x.y in l %}{% endfor %}
{% for x of l %}{% endfor %}
{% for in l %}{% endfor %}
{% for x in l %}
{% for x in %}{% endfor %}
{% for 1 in l %}{% endfor %}
{% for x in l %}{{ x }}{% endfor x %}
{% for x in d.items() %}{{ x }}{{ x[0] }}{% endfor %}
{% for x in l|reverse %}{{ x }}{{ loop.length }}{{ loop.revindex }}{% endfor %}
{% for m in messages %}{{ m.role }}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endif %}{{ '' if loop.last else ', ' }}{% endfor %}
{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'user' %}after user{% endif %}{% if not loop.last and loop.nextitem.role != 'tool' %}.{% endif %}{% endfor %}
{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for a in l %}{% for b in l if b > a %}{{ a }}{{ b }} {% endfor %}{% endfor %}
{% for x in l %}{{ y }}{% endfor %}{% set y = 1 %}
{% set ns = namespace(f=none) %}{% for x in l %}{% set ns.f = loop %}{% endfor %}{{ ns.f.index }}
{% for x in l %}{% for y in l %}{% endfor %}{{ y }}{% endfor %}|
""")

group("macro", r"""
{% macro m() %}M{% endmacro %}{{ m() }}{{ m() }}
{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(1) }}{{ m('x') }}{{ m(a=2) }}{{ m() }}
{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m(1, b=none) }}
{% macro m(a, b=a, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=9) }}
{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}
{% macro m(a=n) %}{{ a }}{% endmacro %}{{ m() }}{% set n = 9 %}{{ m() }}
{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}{{ m(missing) }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m %}{% endmacro %}
{% macro 1() %}{% endmacro %}
{% macro m() %}
{% macro m(a, kwargs=5) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, kwargs=2) }}
{% macro m() %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m() }}
{{ m() }}{% macro m() %}M{% endmacro %}
{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 8 %}{{ m() }}
{% macro m() %}{% set n = 8 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}
{% macro m() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ m() }}
{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro m(a) %}{% if a %}{{ a|upper }}{% endif %}{% endmacro %}{{ m('x') ~ m('y') }}{{ m('abc')|length }}{{ m('abc')[0] }}
{% macro m() %}  a  {% endmacro %}[{{ m()|trim }}]
{% macro m() -%} ⏎ a ⏎ {%- endmacro %}[{{ m() }}]
{% macro m(a) %}{{ a }}{% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}
{% for x in l %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}
{% macro m(loop) %}{{ loop }}{% endmacro %}{{ m(1) }}
{% macro m() %}{% for x in l %}{{ x }}{{ loop.index }}{% endfor %}{% endmacro %}{{ m() }}
{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}
{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ m() }}{{ m() }}{{ ns.n }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(x=1, x=2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(x=1, 2) }}
{{ m.name }}{% macro mm(a, b=1) %}{% endmacro %}{{ mm.name }}{{ mm.arguments }}{{ mm.catch_kwargs }}{{ mm.caller }}
{% macro m() %}{% if t %}{{ raise_exception('in macro') }}{% endif %}{% endmacro %}{{ m() }}
{% macro m() %}{% generation %}g{% endgeneration %}{% endmacro %}{{ m() }}
{% generation %}a{{ n }}{% endgeneration %}b
{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% set y = x %}{{ y }}{% endgeneration %}{{ y }}{% endfor %}
{%- generation -%}  a  {%- endgeneration -%}  b
{% generation %}a
{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% filter upper %}abc{{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}banana{% endfilter %}
{% filter trim %}  x  {% endfilter %}{% filter nope %}x{% endfilter %}
{% filter length %}abc{% endfilter %}
{% filter upper %}{% set w = 'in' %}{{ w }}{% endfilter %}{{ w }}|
""")

group("globals and errors", r"""
{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(0, 10, 3)|list }} {{ range(5, 0)|list }} {{ range(-3, 0)|list }} {{ range(true)|list }}
{{ range() }}
{{ range('a') }}
{{ range(1.0) }}
{{ range(1, 2, 0) }}
{{ range(1, 2, 3, 4) }}
{{ range(stop=3) }}
{{ range(100001) }}
{{ range(100000)|length }}
{{ range(missing) }}
{{ dict(a=1, b=2) }} {{ dict() }} {{ dict({'x': 1}, y=2) }} {{ dict(d) == d }} {{ dict(d, a=9).a }}
{{ dict({}, {}) }}
{{ raise_exception('boom') }}
a{{ raise_exception('Only é ' ~ n) }}b
{{ raise_exception(5) }}
{{ raise_exception(none) }}
{{ raise_exception(message='kw') }}
{{ raise_exception() }}
{{ raise_exception('a', 'b') }}
{% if messages[0].role != 'user' %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{{ 'x' if t else raise_exception('no') }}
{{ strftime_now('%Y')|length }} {{ strftime_now('%d %b %Y')|length }} {{ strftime_now('%Y-%m-%d')|length }} {{ strftime_now('100%%') }} {{ strftime_now('') }}| {{ strftime_now('é %%Y') }}
{{ strftime_now() }}
{{ strftime_now(5) }}
{{ 1.5.x }}
{{ x y }}
{{ f(x }}
{{ a.b( }}
{{ n(1)(2) }}
{{ s.upper()() }}
{{ [].x.y }}
{{ {}['a']['b'] }}
{{ none.x() }}
{{ 'a'.b.c }}
{{ n|upper.x }}
{{ *l }}
{{ **d }}
""")


# What template_random.py found.
group("found at random", r"""
{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}
{% for x in l %}{{ loop is iterable }}{{ loop.index }}{% endfor %}
{{ lines.splitlines(d) }}
{{ l|sort(reverse=missing) }}
{{ l|sort(reverse=none) }}
{{ d|dictsort(reverse=1) }}
{{ {d: 1, 'a': raise_exception('first')} }}
{#
a{#-
{# x
{{ nested|sum(start=[]) }} {{ l + l + l }} {{ (1,) + (2,) + (3,) }}
""")

group("corners", r"""
{% set big = {'k0': 0, 'k1': 1, 'k2': 2, 'k3': 3, 'k4': 4, 'k5': 5, 'k6': 6, 'k7': 7, 'k8': 8, 'k9': 9, 'k10': 10, 'k11': 11, 'k3': 33, 5: 5.5, none: 'n', (1, 2): 't'} %}{{ big|length }}{{ big.k3 }}{{ big['k11'] }}{{ big[5.0] }}{{ big[none] }}{{ big[(1, 2)] }}{{ big.nope is defined }}{{ 'k9' in big }}{{ 'k99' in big }}{{ big == dict(big) }}{{ big }}
{{ ('a\nb'|safe)|indent + '<' }} {{ ('ab'|safe)[::-1] + '<' }} {{ ('ab'|safe)|reverse + '<' }} {{ ('ab'|safe)|first + '<' }} {{ ('ab'|safe)|list }} {{ ('<'|safe) + ('<'|e) }} {{ ['<'|safe]|join('>') }} {{ (['<'|safe]|join('>')) + '<' }} {{ ('a'|safe)|default('b') + '<' }} {{ ('<'|safe)|tojson + '<' }} {{ ('A'|safe)|lower + '<' }} {{ ('A'|safe)|title + '<' }} {{ ('A'|safe)|capitalize + '<' }} {{ '<' + 'b'|safe + '>' ~ '"' }}
{{ (s|upper)[0] }}{{ s|upper|first }}{{ -l[0] }}{{ not s }}{{ (not s) is false }}{{ 2 * -3 }}{{ 2 - -3 }}{{ - 3|abs }}{{ s is string is true }}
{{ range(200)|map('string')|unique|list|length }} {{ (range(100)|list + range(100)|list)|unique|list|length }} {{ [1.5, 'a', none, (1, 2), true, 1.5, 'a', none, (1, 2), 2, 3, 4, 5, 6, 7, 8, 9]|unique|list }}
{% set q = 'nan' %}{% set nan = q|float %}{{ nan == nan }}{{ nan < 1 }}{{ nan > 1 }}{{ nan <= 1 }}{{ 1 < nan }}{{ nan != nan }}{{ nan == 1 }}{{ nan|string }}{{ {nan: 1}|length }}{{ [nan, 1]|max }}
{{ l is sameas d }} {{ range is sameas range }} {{ -9223372036854775807 - 1 }} {{ (-9223372036854775807 - 1) < -9.3e18 }} {{ 9223372036854775807 < 9.3e18 }} {{ 'inf'|float > 9223372036854775807 }}
{{ 1 < missing }}
{% set q = 'inf' %}{% set i = q|float %}{{ '%s %s' % ('a', 'b'|safe) }}
{{ 1e308|round(2) }} {{ 2.5|round(330) }} {{ ('nan'|float)|round }} {{ ('inf'|float)|round(1) }} {{ -0.4|round }}
{{ {(1, []): 1} }}
{{ d[(1, [])] }}| {{ d[(1, (2, d))] }}|
{{ l|tojson(separators=(1, 2)) }}
{{ l|tojson(separators=(',',)) }}
{{ [1, 2][9223372036854775807] }}| {{ s[-9223372036854775807] }}| {{ s[9223372036854775807:] }}| {{ s[:-9223372036854775807] }}| {{ l[::9223372036854775807] }} {{ l[::-9223372036854775807] }} {{ s[::9223372036854775807] }} {{ s[5::-9223372036854775807] }}
{{ 10 // 3 * 3 + 10 % 3 }} {{ 'x'.join('abc').split('x')|join }} {{ (1 if t) + 1 }} {{ [[]] * 2 == [[], []] }}
{% set f = s.upper %}{{ f() }}{% set r = range %}{{ r(2)|list }}{% set g = d.get %}{{ g('a') }}{{ g('zz', 1) }}
{{ users|map(attribute='name')|map('first')|join }} {{ users|map(attribute='address')|map(attribute='zip')|list }} {{ words|map('list')|map('sort')|map('join')|list }} {{ nested|map('sum')|list }} {{ nested|map('map', 'string')|map('join', '+')|list }}
{{ words|map('length', 1)|list }}
{{ words|map(attribute='upper')|first is callable }} {{ pairs|map(attribute=0)|join }} {{ pairs|map(attribute=-1)|join }} {{ words|map(attribute=none)|join }} {{ words|map(attribute=true)|join }}
{% for x in l %}{% for y in l if y != x %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{{ y }}{% else %}-{% endfor %}{% endfor %}
{% macro m(l) %}{% for x in l %}{% if x is sequence and x is not string %}{{ m(x) }}{% else %}{{ x }}{% endif %}{{ ',' if not loop.last }}{% endfor %}{% endmacro %}{{ m([1, [2, [3, 'x']], 4]) }}
{% set x = 1 %}{% macro m() %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m() }}{{ m() }}{{ x }}
{% set x = 1 %}{% macro m(x=x) %}{{ x }}{% endmacro %}{{ m() }}{{ m(5) }}
{% macro m() %}{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q }}{% endfor %}{% endmacro %}{{ m() }}
{% if t %}{% for a in l %}{% if a == 1 %}{% set found = true %}{% endif %}{% endfor %}{% endif %}{{ found is defined }}
{% set a = 1 %}{% if t %}{% if no %}{% set a = 2 %}{% endif %}{% endif %}{{ a }}{% if no %}{% elif t %}{% if t %}{% set b = a %}{% endif %}{% endif %}{{ b }}
{% for x in l %}{% if no %}{% set s = 1 %}{% endif %}{{ s|length }}{% endfor %}{{ s|length }}
{% for x in l %}{{ s|length }}{% if x == 1 %}{% set s = '' %}{% endif %}{{ s|length }};{% endfor %}
{% set x | default('d') %}{% endset %}[{{ x }}]{% set x | default('d', true) %}{% endset %}[{{ x }}]{% set x | length %}abc{% endset %}{{ x + 1 }}
{{ not t in [false] }}{{ t not in [false] }}{{ 1 not in [2] }}{{ (not 1) in [false] }}{{ n in l and n not in none_list }}
{{ [n, n + 1, [n]]|string }}{{ {'a' ~ n: n}|string }}{{ (n,)|string }}{{ [l[0], l[-1]]|sum }}
""")

# Every character that has another case, and of those whose other case is several characters each beside another letter.
CONTEXT["cased"] = "".join(c for c in map(chr, range(0x110000)) if len({c, c.lower(), c.upper(), c.title()}) > 1)
CONTEXT["special"] = " ".join(f"{c} a{c}" for c in CONTEXT["cased"] if len(c.upper() + c.lower() + c.title()) > 3)

group("upper and lower case", r"""
{{ cased.upper() }}
{{ cased.lower() }}
{{ cased|list|map('title')|join }}
{{ cased|list|map('capitalize')|join }}
{{ special.title() }}
{{ special|title }}
{{ special.capitalize() }}
{{ special|upper }} {{ special|lower }}
{{ ['Σ', 'ΑΣ', 'ΑΣΑ', 'Α.Σ', "Α'Σ.Α", 'ΑΣ:', 'Σ Σ', 'ΑΣ1Σ']|map('lower')|list }} {{ 'ΑΣ ΣΑ'.title() }} {{ 'ΣΑΣ'.capitalize() }}
""")


def small_cases():
    for name, cases in GROUPS.items():
        yield name, [{"name": f"{name} {i}", "template": t} for i, t in enumerate(cases)]


def answer(template, context):
    said = render(template, context)
    said.pop("why", None)
    return said


def main():
    groups = {}
    for name, cases in small_cases():
        for case in cases:
            case.update(answer(case["template"], CONTEXT))
        groups[name] = cases
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template_cases.json")
    with open(path, "w") as f:
        models = [{**case, **answer(TEMPLATES[case["style"]], context)} for case, context in model_cases()]
        whole = {"templates": TEMPLATES, "conversations": CONVERSATIONS, "options": OPTIONS, "cases": models}
        json.dump({"context": CONTEXT, "groups": groups, "whole": whole}, f, ensure_ascii=False, indent=0)
        f.write("\n")
    print(sum(map(len, groups.values())) + len(models), "cases")


if __name__ == "__main__":
    main()
