# Writes cases.json: templates, what they are given, and what Jinja2 makes of them with the
# settings of transformers' chat templates. Run it with Jinja2 3.1: python3 make.py > cases.json
import json, random
from datetime import datetime
from jinja2 import nodes, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):  # renders what is inside
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime(2026, 3, 5, 7, 8, 9).strftime(f)

messages = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "  Hello, wörld!\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi \"you\"."},
    {"role": "user", "content": [{"type": "text", "text": "What's 2+2?"}, {"type": "image"}]},
]
tools = [{"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1.5}}, "required": ["a"]}}}]
base = {"messages": messages, "tools": tools, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "n": 5, "x": 2.5, "name": "Ada", "empty": [], "nothing": None, "yes": True, "d": {"b": 1, "a": [1, 2], "C": None}, "text": "The quick  brown\tfox\njumps", "list": [3, 1, 2], "words": ["b", "A", "c", "a"]}

expressions = """
1 + 2 * 3 - 4
7 // 2
-7 // 2
-7 % 3
7 % -3
7 / 2
2 ** 10
-2 ** 2
2 ** -1
1.0
1e20
1e-7
0.1 + 0.2
5.0 // 2
true
none
nothing
undefinedthing
[1, 'a', "it's", 2.0, none, true]
(1,)
(1, 2)
()
{'a': 1, 'b': [1, {'c': 2}]}
d
d.a
d['a'][1]
d.items() | list
d.keys() | list
d.get('zz', 'none')
d.get('C')
d.zz is defined
d.C is none
list[0]
list[-1]
list[1:]
list[::-1]
list[:-1]
list[5:]
text[4:9]
text[::-1]
text[0]
text[-3:]
name ~ n ~ nothing ~ x
'a' 'b'
'a\\n\\tb\\'\\x41\\u00e9'
'%s is %d and %.2f%%' % (name, n, x)
'%05.1f|%-5s|%5s|%x' % (x, 'ab', 'cd', 255)
'{} {1} {k}'.format(1, 2, k=3) if false else '{} and {}'.format(1, name)
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' < 'b'
[1, 2] < [1, 3]
'q' in text
'zz' not in text
3 in list
'a' in d
not yes
not (yes and n)
yes and 'x' or 'y'
empty or 'nothing'
'a' if yes else 'b'
'a' if not yes
n is odd
n is divisibleby 5
n is not even
n is number and x is float and n is integer and name is string
d is mapping and list is sequence and list is iterable
name is in ['Ada', 'Bob']
n is eq 5
nothing is none
nothing is not none
yes is true
yes is boolean
undefinedthing is not defined
name is upper
'ABC' is upper
text is string and text | length > 3
list | length
name | upper | lower
text | title
'hELLO wORLD' | capitalize
"  x " | trim
'xxaxx' | trim('x')
' a '.strip() + '|'
'abcabc'.lstrip('ab')
'abcabc'.rstrip('bc')
'a,b,,c'.split(',')
'  a  b c '.split()
'a b c d'.split(' ', 2)
'a b c d'.rsplit(' ', 1)
' a b  c '.split(none, 1)
' a b  c '.rsplit(none, 1)
'a\\nb\\n\\nc'.splitlines()
'</think>x</think>y'.split('</think>')[-1].lstrip('\\n')
'abc'.startswith('ab') and 'abc'.endswith(('x', 'c'))
'abc'.find('c')
'äbc'.find('c')
'abc'.find('x')
'abc'.replace('b', 'xx')
'aaa'.replace('a', 'b', 2)
'aaa' | replace('a', 'b', 1)
'abc'.upper()
'a-b'.title()
'12'.isdigit()
'7'.zfill(3)
'-7'.zfill(4)
[] * 9223372036854775807 ~ '' * 9223372036854775807
'-7'.zfill(-5)
'-7'.zfill(-9223372036854775807 - 1)
'prefix-x'.removeprefix('prefix-')
', '.join(['a', 'b'])
list | join(', ')
messages | map(attribute='role') | join(',')
messages | selectattr('role', 'equalto', 'user') | list | length
messages | rejectattr('role', '==', 'user') | map(attribute='role') | list
messages | selectattr('name', 'defined') | list
messages | selectattr('role') | list | length
list | select('gt', 1) | list
list | reject('odd') | list
words | map('upper') | list
words | sort
words | sort(reverse=true)
words | sort(case_sensitive=true)
words | unique | list
messages | map(attribute='role') | unique | list
list | sort | first
list | max
list | min
list | sum
list | last
list | reverse | list
text | reverse
empty | first | default('none')
undefinedthing | default('d')
undefinedthing | d
nothing | default('d')
nothing | default('d', true)
'' | default('d', boolean=true)
x | round
2.345 | round(2)
7.5 | int
'42' | int + 1
'x' | int(7)
'ff' | int(base=16)
'3.5' | float
-3 | abs
n | string + '!'
'a\\nb\\n\\nc' | indent
'a\\nb' | indent(2, true)
'a\\nb' | indent('> ')
d | dictsort
d | items | list
'<a href="x">' | escape
'<b>' | safe
'%s-%s' | format(1, 'a')
'x' | center(5) ~ '|'
'xy' | center(5) ~ '|'
'xy' | center(-9223372036854775807 - 1) ~ '|'
-2.5 ~ -0.0 ~ +3
'a long text that is cut' | truncate(12)
'a long text that is cut' | truncate(12, true)
'Two words' | wordcount
[1, 2, 3, 4, 5] | batch(2) | list
'abc' | list
range(3) | list
range(5, 0, -2) | list
d | tojson
d | tojson(indent=2)
tools | tojson
tools[0] | tojson(indent=4)
tools | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
'wörld "q" \\n \\\\ </x> \\x01' | tojson
'wörld 😀' | tojson(ensure_ascii=true)
'~\\x7f\\x80\\uffff' | tojson(ensure_ascii=true)
'\\x01\\x7f\\n\\r\\t\\b\\f\\'\\"\\\\' | tojson
['\\x01\\x7f\\n\\r\\t\\b\\f\\'\\"\\\\', "'", '"']
[1.5, 1e20, 2.0, true, none] | tojson
[] | tojson(indent=2)
{} | tojson
dict(a=1, b=2)
dict(d, z=1).z
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I')
messages[0]['content']
messages[0].content
messages[-1].content[0].text
messages[1].content | trim
messages[3].content is string
loop is defined
name.upper is callable
'a' * 3
[0] * 3
[1] + [2]
'ab' | first
'é' | upper
"tab\\there"
"x" "y" ~ 'z'
1_000
(yes, n)
{'a': {'b': {}}}['a']['b']
{1: 'x'}[1]
{'a': 1} == {'a': 1.0}
[[1]] == [[1]]
'a' ~ {'b': 'c\\n'}
["\\u2028é\\x00\\x7f"]
1 if yes else 2 if n else 3
n|string|length
-n|abs
(n + 1) is even and true
name is defined and name is not none and name|length == 3
'a' is in 'abc'
d.a is not string and d.a is iterable
'%d' % 3.7
messages|length - 1
messages[0]['role'] == 'system' and messages[0].content or ''
""".strip().split("\n")

templates = [
    "{{ '{{' }} {# comment #}x\n",
    "a\n  {# c #}\nb",
    "a\n  {%- if yes %}\n  b\n  {%- endif %}\nc\n",
    "  {% if yes %}  \n  b\n  {% endif %}\n  c",
    "a  {%- if yes -%}   b  {%- endif -%}  c",
    "a\n  {%+ if yes %}b{% endif +%}\nc",
    "a {{- name -}} b\n\n",
    "{{ name }}\n{{ name }}\n",
    "{% if yes %}{{ name }}\n{% endif %}\n\n{% if yes %}\nx{% endif %}",
    "\r\na\r\n{% if yes %}\r\nb{% endif %}",
    "{% raw %}{{ x }} {% if %}{% endraw %}!",
    "{% raw -%}  a  {%- endraw %}\nb",
    "x {% raw %}\n  y\n  {% endraw %}\nz",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ m.role }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'tool' %}x{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for (a, b) in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{{ loop.previtem | default('-') }}{{ loop.nextitem | default('-') }}{% endfor %}",
    "{% for t in [{'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3, 'c': []}]}] recursive %}{{ t.n }}@{{ loop.depth }}({{ loop(t.c) }}){% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }}{{ ns.found }}",
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}",
    "{% set x %}\n  a {{ name }}\n{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} a {{ name }} {% endset %}[{{ x }}]",
    "{% macro f(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(a=5, b=6) }} {{ f() }}",
    "{%- macro type(p) -%}\n{%- if p.type is string -%}{{ p.type }}{%- else -%}{{ p.type | join(' | ') }}{%- endif -%}\n{%- endmacro -%}\n{{ type({'type': ['a', 'b']}) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}",
    "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ name }}{% endcall %}",
    "{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(list) %}[{{ i }}]{% endcall %}",
    "{% set y = 1 %}{% macro f() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ f() }}",
    "{% macro f(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }} {{ f(1, *[2], c=4) }} {{ f(*[1], **{'b': 5, 'c': 6}) }}",
    "{% macro f() %}{{ varargs | join(',') }}{{ kwargs }}{% endmacro %}{% macro g() %}{{ f(*varargs, **kwargs) }}{% endmacro %}{{ g(1, 2, x=3) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(**[1]) }}",
    "{% filter upper %}a {{ name }}{% endfilter %}",
    "{% with a=1, b=name %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
    "{% if not yes %}a{% elif n == 5 %}b{% elif true %}c{% else %}d{% endif %}",
    "{% for m in messages %}{% if m.content is string %}{% set c = m.content %}{% else %}{% set c = '' %}{% for p in m.content if p.type == 'text' %}{% set c = p.text %}{% endfor %}{% endif %}{{ c }}|{% endfor %}",
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0]['content'] %}{% endif %}{% for m in rest %}{% if loop.index0 == 0 and sys is defined %}{{ '<<SYS>>' + sys + '<</SYS>>' }}{% endif %}{{ m.role }}{% endfor %}",
    "{%- for message in messages %}\n    {%- if (message.role == 'user') %}\n        {{- '<|im_start|>' + message.role + '\\n' + (message.content if message.content is string else message.content[0].text) + '<|im_end|>' + '\\n' }}\n    {%- elif message.role == 'assistant' %}\n        {%- set content = message.content %}\n        {%- if '</think>' in content %}\n            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n        {%- endif %}\n        {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "{% set j = joiner('|') %}{% for w in words %}{{ j() }}{{ w }}{% endfor %}{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
    "{% if tools is not none and tools | length > 0 %}{% for t in tools %}{{ t | tojson(indent=2) }}\n{% endfor %}{% endif %}end",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}",
    "{{- '' }}{% for i in [] %}{% endfor %}",
    "{{ raise_exception('Roles must alternate: ' + name) }}",
    "{{ missing.field }}",
    "{{ missing + 1 }}",
    "{{ missing() }}",
    "{{ name.missing.deeper }}",
    "{{ [].append(1) }}",
    "{{ d.update({'x': 1}) }}",
    "{{ 1 + 'a' }}",
    "{{ 1 / 0 }}",
    "{{ missing | tojson }}",
    "{{ 'a' < 1 }}",
    "{% set d.x = 1 %}",
    "{{ range(100001) | length }}",
    "{{ name | nosuchfilter }}",
    "{{ name is nosuchtest }}",
    "{% nosuchtag %}",
    "{% if yes %}",
    "{% endif %}",
    "{{ name",
    "{{ (1 }}",
    "{# no end",
    "{% for x in %}{% endfor %}",
    "{% include 'x' %}",
    "{{ f(1, 2) }}{% macro f(a) %}{% endmacro %}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{{ 'x' ~ }}",
    "{{ {'a' 1} }}",
]


def random_template(r):
    """White space around tags of all kinds."""
    space = ["", " ", "  ", "\n", "\n\n", " \n ", "\t", "x", "x\n", " x", "\n  "]
    out = []
    depth = 0
    for _ in range(r.randint(3, 9)):
        out.append(r.choice(space))
        o, c = r.choice(["", "-", "+"]), r.choice(["", "-", "+"])
        k = r.randint(0, 4)
        if k == 0:
            out.append("{{" + o.replace("+", "") + " n " + c.replace("+", "") + "}}")
        elif k == 1:
            out.append("{#" + o + " c " + c + "#}")
        elif k == 2:
            out.append("{%" + o + " set q = 1 " + c + "%}")
        elif k == 3:
            out.append("{%" + o + " if yes " + c + "%}")
            depth += 1
        elif depth:
            out.append("{%" + o + " endif " + c + "%}")
            depth -= 1
    out.append(r.choice(space))
    while depth:
        out.append("{% endif %}" + r.choice(space))
        depth -= 1
    return "".join(out)


def case(template):
    try:
        return {"template": template, "want": env.from_string(template).render(**base)}
    except Exception as e:
        return {"template": template, "error": type(e).__name__ + ": " + str(e)}


r = random.Random(1)
cases = [case("{{ " + e + " }}") for e in expressions] + [case(t) for t in templates] + [case(random_template(r)) for _ in range(400)]
print(json.dumps({"vars": base, "cases": cases}, ensure_ascii=False, indent=0))
