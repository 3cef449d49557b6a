#!/usr/bin/python3
"""Write random templates for package chat, with their output from transformers (5.24.0, with jinja2 3.1.6,
Python 3.12). The grammar is in chat_grammar.py.

Usage:
    chat_random.py SEED COUNT OUT
    PSYCHE_CHAT_RANDOM=OUT go test -run RandomTemplates -v ./files/tokenizer/chat

With a fourth argument, BYTES, the file has at most this size, and no long lines. Such a file is
files/tokenizer/chat/testdata/random.jsonl, with the arguments 7 9000 OUT 300000.
"""
import datetime
import json
import random
import sys
import warnings

from chat_grammar import Grammar
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template

warnings.simplefilter("ignore", SyntaxWarning)
NOW = datetime.datetime(2026, 1, 5, 6, 7, 8, 90)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": {"b": "x<y>", "a": [1, 2.5, None], "C": {"d": True}}}}
CHATS = [
    [{"role": "user", "content": " Hi, \"you\" & <b>it's</b> O'Brien-Smith\n"}, {"role": "assistant", "content": "Ünïcode 🙂 ß ΑΣ ǆ"}],
    [{"role": "system", "content": "a b  c\td\n\ne "}, {"role": "user", "content": "", "name": "Ann"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "-12.50", "tool_call_id": "c1"}],
    [],
    [{"role": "user"}, {"role": "assistant", "content": "²٣ 一 Ⅷ x_1", "tool_calls": []}, {"role": "user", "content": "x" * 90 + " https://a.b/c?d=e&f"}],
]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"maximum": 18446744073709551615, "minimum": -1e-07}}}}}]


class Clock(datetime.datetime):
    """Clock is a datetime with a fixed time."""

    @classmethod
    def now(cls, tz=None):
        return NOW


def rendered(template, chat):
    """Return the text of a template, or the name of its error."""
    try:
        texts, _ = render_jinja_template([chat], tools=TOOLS, chat_template=template, **TOKENS)
        texts[0].encode()
        return {"text": texts[0]}
    except Exception as error:  # any type means that the template refused
        return {"error": type(error).__name__}


def main():
    seed, count = map(int, sys.argv[1:3])
    most = int(sys.argv[4]) if len(sys.argv) > 4 else None
    chat_template_utils.datetime = Clock
    rng = random.Random(seed)
    size = 0
    with open(sys.argv[3], "w") as file:
        head = json.dumps({"now": NOW.isoformat() + "Z", "tokens": TOKENS, "tools": TOOLS, "chats": CHATS}, ensure_ascii=False)
        size += file.write(head + "\n")
        for _ in range(count):
            template, chat = Grammar(rng).template(), rng.randrange(len(CHATS))
            result = rendered(template, CHATS[chat])
            text = result.get("text", "")
            if len(text) > 20000:
                continue
            line = json.dumps({"template": template, "chat": chat, **result}, ensure_ascii=False) + "\n"
            if most and (len(line) > 350 or " at 0x" in text):
                continue
            size += len(line.encode())
            if most and size > most:
                break
            file.write(line)


main()
