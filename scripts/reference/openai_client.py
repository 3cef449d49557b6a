#!/usr/bin/env python3
"""Talks to a server with the PyPI package openai (tested with 3.57.0), for `go test ./face/openai`.

    openai_client.py URL KEY MODEL ANSWER CALLING

MODEL always answers ANSWER, with one token per byte. At the URL CALLING it instead writes "I look." and
a call of the tool weather. The script prints "ok".
"""
import sys

import openai

url, key, model, answer, calling = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=20)
ask = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
tokens = len(answer.encode())

assert [m.id for m in client.models.list()] == [model]
assert client.models.retrieve(model).id == model

one = client.chat.completions.create(model=model, messages=ask, temperature=0, seed=7, user="me", n=1)
assert one.choices[0].message.content == answer and one.choices[0].message.role == "assistant", one
assert one.choices[0].finish_reason == "stop" and one.usage.completion_tokens == tokens, one
assert one.object == "chat.completion" and one.usage.total_tokens == one.usage.prompt_tokens + tokens, one

again = client.chat.completions.create(model=model, messages=ask + [one.choices[0].message, {"role": "user", "content": "More"}], max_completion_tokens=2)
assert again.choices[0].finish_reason == "length" and again.usage.completion_tokens == 2, again

events = list(client.chat.completions.create(model=model, messages=ask, stream=True, stream_options={"include_usage": True}))
assert "".join(e.choices[0].delta.content or "" for e in events if e.choices) == answer, events
assert events[0].choices[0].delta.role == "assistant" and events[-2].choices[0].finish_reason == "stop", events
assert events[-1].usage.completion_tokens == tokens and not events[-1].choices, events[-1]

text = client.completions.create(model=model, prompt="Hi", max_tokens=100, stop=[answer[-1]])
assert text.choices[0].text == answer[:-1] and text.choices[0].finish_reason == "stop", text
assert "".join(e.choices[0].text for e in client.completions.create(model=model, prompt="Hi", max_tokens=100, stream=True)) == answer

with client.chat.completions.stream(model=model, messages=ask) as stream:
    assert stream.get_final_completion().choices[0].message.content == answer

for prompts in (["Hi", "You", "All"], [[72, 105], [89, 111, 117], [65, 108, 108]]):
    several = client.completions.create(model=model, prompt=prompts, max_tokens=100)
    assert [(c.index, c.text) for c in several.choices] == [(i, answer) for i in range(3)], several
    assert several.usage.completion_tokens == 3 * tokens and several.usage.prompt_tokens == 8, several.usage
    written = ["", "", ""]
    for event in client.completions.create(model=model, prompt=prompts, max_tokens=100, stream=True):
        written[event.choices[0].index] += event.choices[0].text
    assert written == [answer] * 3, written
assert client.completions.create(model=model, prompt=[72, 105], max_tokens=100).choices[0].text == answer
developer = [{"role": "developer", "content": "Be brief."}] + ask[1:]
assert client.chat.completions.create(model=model, messages=developer).choices[0].message.content == answer

scored = client.completions.create(model=model, prompt="Hi", max_tokens=2, logprobs=2).choices[0].logprobs
assert scored.tokens == list(answer[:1]) + scored.tokens[1:] and scored.text_offset == [0, 1] and max(scored.token_logprobs) <= 0, scored
assert all(len(top) == 2 and name in top for name, top in zip(scored.tokens, scored.top_logprobs)), scored
scored = client.chat.completions.create(model=model, messages=ask, logprobs=True, top_logprobs=3).choices[0].logprobs
assert b"".join(bytes(one.bytes) for one in scored.content) == answer.encode() and len(scored.content[0].top_logprobs) == 3, scored

tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"b": {"type": "number"}}}}}
caller = openai.OpenAI(base_url=calling + "/v1", api_key=key, max_retries=0, timeout=20)
one = caller.chat.completions.create(model=model, messages=ask, tools=[tool], parallel_tool_calls=False).choices[0]
assert one.finish_reason == "tool_calls" and one.message.content == "I look.", one
assert [(c.type, c.function.name, c.function.arguments) for c in one.message.tool_calls] == [("function", "weather", '{"b":1}')], one
with caller.chat.completions.stream(model=model, messages=ask, tools=[tool]) as stream:
    last = stream.get_final_completion().choices[0]
    assert last.message.content == "I look." and last.message.tool_calls[0].function.name == "weather", last
back = ask + [one.message, {"role": "tool", "tool_call_id": one.message.tool_calls[0].id, "content": "12"}]
assert caller.chat.completions.create(model=model, messages=back, tools=[tool], tool_choice="none").choices[0].finish_reason == "stop"


def refused(kind, word, **request):
    try:
        client.chat.completions.create(**({"model": model, "messages": ask} | request))
    except kind as error:
        assert word in error.message, error
        return error
    raise AssertionError(f"{request} is not refused")


assert refused(openai.BadRequestError, "n is 2", n=2).param == "n"
assert refused(openai.BadRequestError, "top_k", extra_body={"top_k": 5}).code == "unknown_parameter"
long = refused(openai.BadRequestError, "context length", max_tokens=10**6)
assert long.code == "context_length_exceeded" and long.param == "max_tokens", long
assert refused(openai.BadRequestError, "does not show tools", tools=[tool]).param == "tools"
assert refused(openai.BadRequestError, "tool_choice", tools=[tool], tool_choice="required").param == "tool_choice"
assert refused(openai.NotFoundError, "no model", model="other").code == "model_not_found"
client = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
assert refused(openai.AuthenticationError, "API key").code == "invalid_api_key"
print("ok")
