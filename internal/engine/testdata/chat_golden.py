# Makes chat_golden.json: what Jinja2 itself, set up as Hugging Face's transformers sets it up
# (utils/chat_template_utils.py), writes for the chat templates of the pinned llama.cpp.
#
#     pip install jinja2 && python3 chat_golden.py ../../../.engine/src/models/templates > chat_golden.json
import datetime, glob, json, os, sys
import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26, 15, 4, 5)

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

class Generation(jinja2.ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=lineno)

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: NOW.strftime(f)

PARAMS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": PARAMS}}]
SYSTEM = {"role": "system", "content": "Be brief."}
def user(s): return {"role": "user", "content": s}
def assistant(s): return {"role": "assistant", "content": s}
def call(arguments):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "get_weather", "arguments": arguments}, "id": "abc123456"}]}
RESULT = {"role": "tool", "content": '{"temp": 21}', "name": "get_weather", "tool_call_id": "abc123456"}

CASES = {
    "user": dict(messages=[user("Hello é?")], add_generation_prompt=True),
    "turns": dict(messages=[SYSTEM, user("Hi"), assistant("Hello <b>you</b>!"), user("And\n\nnow?")], add_generation_prompt=True),
    "whole": dict(messages=[SYSTEM, user("Hi"), assistant("Hello."), user("Bye"), assistant("See you.")]),
}
TOOL_CASES = {
    "tools": lambda args: dict(messages=[user("Weather in Paris?"), call(args), RESULT], add_generation_prompt=True, tools=TOOLS),
}

def render(template, case):
    try:
        # llama.cpp always says whether to think, and gives a date in two forms.
        return template.render(bos_token="<s>", eos_token="</s>", enable_thinking=True,
            datetime=NOW.strftime("%b %d %Y"), date_string=NOW.strftime("%d %b %Y"), **case)
    except Exception as e:
        return None

out = {}
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.jinja"))):
    with open(path, newline="") as f:
        source = f.read()
    try:
        template = env.from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as e:
        print(path, e, file=sys.stderr)
        continue
    got = {}
    for name, case in CASES.items():
        got[name] = [render(template, case)]
    for name, case in TOOL_CASES.items():
        # Templates want the arguments as an object or as its text.
        got[name] = [render(template, case({"city": "Paris"})), render(template, case('{"city":"Paris"}'))]
    out[os.path.basename(path)[:-len(".jinja")]] = got
json.dump(out, sys.stdout, ensure_ascii=False, indent=0)
