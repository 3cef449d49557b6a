#!/usr/bin/env python3
"""Write which tokens of conversations are the assistant's. For templates that mark them, transformers (5.24.0)
reports the tokens. For other templates, the script encodes the conversation up to each message, like scripts
that prepare samples for fine-tuning. The templates were written for this project.

    python3 scripts/reference/chat_labels.py   # writes files/tokenizer/chat/testdata/labels.json and labels-tokenizer.json.gz
"""

import gzip
import json
import pathlib

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2] / "files/tokenizer"
OUT = ROOT / "chat/testdata"

PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" + PROMPT,
    "marked": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}" + PROMPT,
    "marked last": "{% for m in messages %}{% if m.role == 'assistant' and loop.last %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}" + PROMPT,
}
SYSTEM = {"role": "system", "content": "Be brief."}
CHATS = [
    [{"role": "user", "content": "Hi, you"}, {"role": "assistant", "content": "Hello there!"}],
    [SYSTEM, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "und ü?"}, {"role": "assistant", "content": "日本 \n\nfin."}],
    [SYSTEM, {"role": "user", "content": "only a question"}],
    [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "oh"}, {"role": "assistant", "content": ""}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}, {"role": "user", "content": "oh"}],
    [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}, {"role": "user", "content": "oh"}, {"role": "assistant", "content": "No."}],
]


def added(coder, chat):
    """Return the labels that scripts compute by encoding a conversation with one more message each time. The ids of
    the header of an answer are never learned; transformers agrees for the template that marks answers."""
    whole = coder.apply_chat_template(chat, return_dict=False)
    mask, before = [], 0
    for i, message in enumerate(chat):
        follows = i + 1 < len(chat)
        prompt = follows and chat[i + 1]["role"] == "assistant"
        part = coder.apply_chat_template(chat[: i + 1], add_generation_prompt=prompt, return_dict=False) if follows else whole
        assert whole[: len(part)] == part
        said = part
        if prompt and message["role"] == "assistant":  # the header of the next answer is not learned
            said = coder.apply_chat_template(chat[: i + 1], return_dict=False)
        mask += [int(message["role"] == "assistant")] * (len(said) - before) + [0] * (len(part) - len(said))
        before = len(part)
    if chat[0]["role"] == "assistant":
        question = [{"role": "user", "content": "word"}]
        without, header = (coder.apply_chat_template(question, add_generation_prompt=prompt, return_dict=False) for prompt in (False, True))
        header = header[len(without) :]
        assert whole[: len(header)] == header
        mask[: len(header)] = [0] * len(header)
    return whole, mask


def main():
    tokenizer = Tokenizer.from_str(gzip.decompress((ROOT / "testdata/gpt2.json.gz").read_bytes()).decode())
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", normalized=False), AddedToken("<|im_end|>", normalized=False)])
    (OUT / "labels-tokenizer.json.gz").write_bytes(gzip.compress(tokenizer.to_str().encode(), mtime=0))
    coder = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    vectors = []
    for name, template in TEMPLATES.items():
        coder.chat_template = template
        for chat in CHATS:
            if "generation %" in template:
                got = coder.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
                ids, mask = got["input_ids"], got["assistant_masks"]
            else:
                ids, mask = added(coder, chat)
            vectors.append(dict(name=name, template=template, messages=chat, ids=ids, learned=mask))
    (OUT / "labels.json").write_text(json.dumps(vectors, ensure_ascii=False, indent=1) + "\n")
    print(len(vectors), "vectors,", sum(sum(v["learned"]) for v in vectors), "tokens of the assistant")


if __name__ == "__main__":
    main()
