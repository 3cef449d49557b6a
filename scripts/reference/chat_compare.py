#!/usr/bin/python3
"""Render chat templates of published models with transformers (5.24.0, with jinja2 3.1.6), to compare
package chat with it. The script renders each file NAME.jinja below TEMPLATES with 26 conversations. They
contain tools, calls, system messages, unknown roles, and empty, null and absent values. The templates are
not in this repository, because their licences differ.

Usage:
    chat_compare.py TEMPLATES OUT
    PSYCHE_CHAT_TEMPLATES=OUT go test -run PublishedTemplates -v ./files/tokenizer/chat
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils, logging
from transformers.utils.chat_template_utils import render_jinja_template

NOW = datetime.datetime(2026, 1, 5, 6, 7, 8)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    """Clock is a datetime with a fixed time."""

    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Clock
logging.set_verbosity_error()


def tool(name, description=None, **parameters):
    function = {"name": name}
    if description is not None:
        function["description"] = description
    function["parameters"] = {"type": "object", "properties": parameters, "required": list(parameters)[:1]}
    return {"type": "function", "function": function}


TOOLS = [
    tool("get_weather", 'The "weather" of a <place>; é & ü.', place={"type": "string", "description": "a town", "enum": ["Paris", "Köln"]},
         limit={"type": "number", "default": 3.0, "minimum": 0.5}),
    tool("find", "Find things.", words={"type": "array", "items": {"type": "string"}}, options={"type": "object", "properties": {"deep": {"type": "boolean"}, "at": {"type": ["string", "null"]}}}),
    tool("stop"),
]


def user(text=" Hi, \"you\"\n"):
    return {"role": "user", "content": text}


def answer(text="Hello <b>é</b>."):
    return {"role": "assistant", "content": text}


def system(text="Be brief. "):
    return {"role": "system", "content": text}


def called(*arguments, content="", **more):
    message = {"role": "assistant"}
    if content != "absent":
        message["content"] = content
    calls = []
    for number, one in enumerate(arguments):
        function = {"name": "get_weather"}
        if one != "absent":
            function["arguments"] = one
        calls.append({"id": f"call0000{number}", "type": "function", "function": function})
    return {**message, "tool_calls": calls, **more}


def result(text="12.5 °C", **more):
    return {"role": "tool", "content": text, **more}


ARGUMENTS = {"place": "Köln <x>", "limit": 0.25, "deep": [1, {"a": None}], "yes": True}
THOUGHT = "<think>\nso it is\n</think>\n\nYes."
# Each entry is a list of messages, whether tools are given, and whether an answer follows.
CONVERSATIONS = [
    ([user()], False, True),
    ([system(), user(), answer(), user("and it's {{ 1 }}?")], False, True),
    ([user(), answer(THOUGHT), user("  more\n"), answer(THOUGHT)], False, False),
    ([answer("I begin"), user()], False, True),
    ([user(), user("twice"), answer(), answer("twice")], False, False),
    ([user(""), answer("")], False, False),
    ([system(""), user("x")], False, True),
    ([user(), {"role": "narrator", "content": "It rains."}], False, True),
    ([], False, True),
    ([user()], True, True),
    ([system(), user()], True, True),
    ([user(), called(ARGUMENTS), result(tool_call_id="call00000", name="get_weather")], True, True),
    ([user(), called(json.dumps(ARGUMENTS), content=None), result(tool_call_id="call00000")], True, True),
    ([user(), called({}, content="absent"), result("", tool_call_id="call00000"), answer()], True, False),
    ([user(), called(""), result(tool_call_id="", name="")], True, True),
    ([user(), called(None, content="Let me see."), result(tool_call_id=None, name=None)], False, True),
    ([user(), called("absent"), result(None)], True, True),
    ([system(), user(), called(ARGUMENTS, {"place": "Paris"}, content=THOUGHT), result("1", tool_call_id="call00000"), result("2", tool_call_id="call00001"), answer(), user("Thanks.")], True, True),
    ([user(), {"role": "assistant", "content": "No.", "tool_calls": []}, user()], True, True),
    ([user(), {"role": "assistant", "content": "No.", "tool_calls": None}, user()], False, True),
    ([user(None)], False, True),
    ([{"role": "user"}, {"role": "assistant"}], False, False),
    ([user(), answer(None)], False, False),
    ([system(None), user(), answer(" ")], True, True),
    ([{"role": "user", "content": "I am Ann", "name": "Ann"}, {"role": "assistant", "content": "I am Bob", "name": ""}], False, False),
    ([{"role": "developer", "content": "Be kind."}, user("<|im_end|>"), answer("a\n\nb </think> c"), user("/no_think x")], False, True),
]


def rendered(template, messages, tools, prompt):
    try:
        texts, marked = render_jinja_template(
            [messages], tools=TOOLS if tools else None, chat_template=template, add_generation_prompt=prompt, return_assistant_tokens_mask=True, **TOKENS
        )
        return {"text": texts[0], "marked": [span for span in marked[0] if span[0] < span[1]]}
    except Exception as error:  # any type means that the template refused
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    conversations = [{"messages": messages, "tools": tools, "prompt": prompt} for messages, tools, prompt in CONVERSATIONS]
    (out / "conversations.json").write_text(json.dumps({"now": NOW.isoformat() + "Z", "tokens": TOKENS, "tools": TOOLS, "conversations": conversations}, ensure_ascii=False, indent=1) + "\n")
    files = sorted(folder.rglob("*.jinja"))
    refused = 0
    with open(out / "results.jsonl", "w") as lines:
        for file in files:
            template = file.read_bytes().decode()
            results = [rendered(template, *one) for one in CONVERSATIONS]
            refused += sum("error" in one for one in results)
            lines.write(json.dumps({"name": str(file.relative_to(folder)), "template": template, "results": results}, ensure_ascii=False) + "\n")
    print(f"{len(files)} templates, {len(files) * len(CONVERSATIONS)} texts, of them {refused} errors")


main()
