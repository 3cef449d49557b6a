#!/usr/bin/env python3
"""Talks to a server by the package openai of PyPI (3.57.0 was tried), for `go test ./face/openai`.

    openai_client.py URL KEY MODEL ANSWER

MODEL writes ANSWER, a token for each byte, whatever it is asked. Prints "ok".
"""
import sys

import openai

url, key, model, answer = sys.argv[1:]
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


def refused(kind, word, **request):
    try:
        client.chat.completions.create(**({"model": model, "messages": ask} | request))
    except kind as error:
        assert word in error.message, error
        return error
    raise AssertionError(f"{request} is not refused")


assert refused(openai.BadRequestError, "n is 2", n=2).param == "n"
assert refused(openai.BadRequestError, "top_k", extra_body={"top_k": 5}).code == "unknown_parameter"
assert refused(openai.BadRequestError, "context length", max_tokens=10**6).code == "context_length_exceeded"
assert refused(openai.NotFoundError, "no model", model="other").code == "model_not_found"
client = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
assert refused(openai.AuthenticationError, "API key").code == "invalid_api_key"
print("ok")
