"""Writes learn/eval/testdata: small data sets in the layouts of the Hub, a small random model, and the
results of EleutherAI's harness for them (vectors.json).

Needs: pip install torch==2.8.0 transformers lm_eval==0.4.13 pyarrow
Run from the repository's root: python scripts/reference/eval_vectors.py
"""
import hashlib
import json
import pathlib
import random

import datasets
import lm_eval
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager, get_task_dict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = pathlib.Path("learn/eval/testdata")
DATA, MODEL = ROOT / "data", ROOT / "model"
WRITTEN = 40  # number of tokens to generate for an answer
draw = random.Random(7)

ANIMALS = ["otter", "heron", "lynx", "newt", "moth", "crab", "wolf", "seal", "ibex", "toad", "Äsche", "vole"]
PLACES = ["river", "marsh", "forest", "cellar", "harbour", "meadow", "cave", "island", "道", "garden"]
VERBS = ["carries", "follows", "hides", "counts", "paints", "repairs"]


def sentence():
    return f"{draw.choice(['A', 'The', 'One'])} {draw.choice(ANIMALS)} {draw.choice(VERBS)} a {draw.choice(ANIMALS)} by the {draw.choice(PLACES)}"


def labelled(name, i):
    count = draw.choice([3, 4, 4, 5])
    labels = [str(n + 1) for n in range(count)] if i % 3 == 2 else list("ABCDE"[:count])
    text = [draw.choice([draw.choice(PLACES), sentence(), draw.choice(ANIMALS) + "s"]) for _ in range(count)]
    question = sentence() + draw.choice([". Where does it sleep?", ". Why?  ", ": what comes next?", " because\n it"])
    return {"id": f"{name}-{i}", name: question, "choices": {"text": text, "label": labels}, "answerKey": draw.choice(labels)}


def arc(i):
    return labelled("question", i)


def openbookqa(i):
    doc = labelled("question_stem", i)
    doc["answerKey"] = " " + doc["answerKey"] if i % 4 == 1 else doc["answerKey"]
    return doc


def boolq(i):
    return {"question": sentence().lower(), "passage": ". ".join(sentence() for _ in range(3)) + ".", "idx": i, "label": draw.randrange(2)}


def hellaswag(i):
    ctx_a = ["[header] How to feed a heron [title] Buy fish. [step] Fish  are sold by the harbour.", sentence() + ".", sentence() + " [substeps]"][i % 3]
    ctx_b = ["", "the " + draw.choice(ANIMALS), "THEN A " + draw.choice(ANIMALS).upper(), "éclairs"][i % 4]
    endings = [draw.choice(["", "[title] ", "  "]) + sentence() + draw.choice([".", " [step] again.", ""]) for _ in range(4)]
    return {"ind": i, "activity_label": draw.choice(["Fishing", "Pets and animals"]), "ctx_a": ctx_a, "ctx_b": ctx_b,
            "ctx": ctx_a + " " + ctx_b, "endings": endings, "label": str(draw.randrange(4))}


def mmlu(i):
    subject = ["abstract_algebra", "us_foreign_policy"][i // 6 % 2]
    return {"question": draw.choice(["  ", ""]) + sentence() + "?\n", "subject": subject,
            "choices": [draw.choice([sentence(), str(draw.randrange(90))]) for _ in range(4)], "answer": draw.randrange(4)}


def mmlu_pro(i):
    count = draw.randrange(3, 11)
    answer = draw.randrange(count)
    return {"question_id": i, "question": sentence() + "?", "options": [sentence() + " " for _ in range(count)],
            "answer": "ABCDEFGHIJ"[answer], "answer_index": answer, "category": ["biology", "computer science"][i // 6 % 2],
            "cot_content": f"A: Let's think step by step. {sentence()}. The answer is ({'ABCDEFGHIJ'[answer]})."}


def piqa(i):
    return {"goal": "How to find a " + draw.choice(ANIMALS) + draw.choice(["?", ":"]), "sol1": sentence(), "sol2": sentence() + ".", "label": draw.randrange(2)}


SETS = [  # folder, split with questions, split with examples, function that makes documents, file ending
    ("allenai/ai2_arc/ARC-Easy", "test", "train", arc, "parquet"),
    ("allenai/ai2_arc/ARC-Challenge", "test", "train", arc, "jsonl"),
    ("aps/super_glue/boolq", "validation", "train", boolq, "jsonl"),
    ("Rowan/hellaswag/data", "validation", "train", hellaswag, "parquet"),
    ("cais/mmlu/all", "test", "dev", mmlu, "parquet"),
    ("TIGER-Lab/MMLU-Pro/data", "test", "validation", mmlu_pro, "parquet"),
    ("allenai/openbookqa/main", "test", "train", openbookqa, "jsonl"),
    ("baber/piqa", "validation", "train", piqa, "jsonl"),
]


def write_data():
    texts = []
    for folder, asked, shown, make, ending in SETS:
        for split in (asked, shown):
            docs = [make(i) for i in range(12)]
            if split == shown and make in (boolq, hellaswag, piqa):
                docs[3] = (DOCS[folder, asked])[1]  # a question that is also an example
            if split == shown and make is piqa:
                docs += [make(i) for i in range(20)]  # enough documents that examples are drawn the other way
            DOCS[folder, split] = docs
            texts += [json.dumps(d, ensure_ascii=False) for d in docs]
            path = DATA / folder / (f"{split}-00000-of-00001.parquet" if ending == "parquet" else f"{split}.jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            if ending == "parquet":
                pq.write_table(pa.Table.from_pylist(docs), path, row_group_size=5)
            else:
                path.write_text("".join(json.dumps(d, ensure_ascii=False) + "\n" for d in docs))
    return texts


def write_model(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(MODEL)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=420, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                         max_position_embeddings=600, bos_token_id=0, eos_token_id=1, initializer_range=0.35, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(MODEL)


def load_dataset(path, name=None, **_):
    """A fake of the Hub."""
    splits = {}
    for (folder, split), docs in DOCS.items():
        owner, repo, *config = folder.split("/")
        if f"{owner}/{repo}" != path:
            continue
        if path == "cais/mmlu":
            docs = [d for d in docs if d["subject"] == name]
        elif name is not None and config != [name]:
            continue
        splits[split] = datasets.Dataset.from_list(docs)
    return datasets.DatasetDict(splits)


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def measure():
    lm = HFLM(pretrained=str(MODEL), device="cpu", dtype="float32", batch_size=1)
    names = ["arc_challenge", "arc_easy", "boolq", "hellaswag", "mmlu_abstract_algebra", "mmlu_us_foreign_policy",
             "mmlu_pro_biology", "mmlu_pro_computer_science", "openbookqa", "piqa"]
    cases = []
    for shots in (0, 5):
        manager = TaskManager()
        tasks = get_task_dict(names, manager)
        for task in tasks.values():
            if task.config.generation_kwargs:
                task.config.generation_kwargs["max_gen_toks"] = WRITTEN
            task.set_config("num_fewshot", shots)
        results = lm_eval.simple_evaluate(model=lm, tasks=list(tasks.values()), num_fewshot=shots, fewshot_random_seed=42, log_samples=True, bootstrap_iters=0)
        for name in names:
            docs = []
            for s in sorted(results["samples"][name], key=lambda s: s["doc_id"]):
                arguments = s["arguments"]
                first = arguments["gen_args_0"]["arg_0"] if isinstance(arguments, dict) else arguments[0][0]
                doc = {"context": first if s["doc_id"] == 0 else "", "sha256": sha(first)}
                for metric in ("acc", "acc_norm", "exact_match"):
                    if metric in s:
                        doc[metric] = float(s[metric])
                response = s["resps"][0][0] if name.startswith("mmlu_pro") else None
                if response is not None:
                    doc["text"] = response
                else:
                    doc["loglikelihoods"] = [float(r[0][0]) for r in s["resps"]]
                docs.append(doc)
            totals = {k.split(",")[0]: v for k, v in results["results"][name].items() if k.split(",")[0] in ("acc", "acc_norm", "exact_match")}
            cases.append({"task": name, "fewshot": shots, "seed": 42, "totals": totals, "documents": docs})
    numbers = [{"seed": seed, "n": n, "k": k, "samples": draws(seed, n, k)}
               for seed, n, k in [(42, 12, 5), (42, 13, 6), (0, 2000, 6), (1234, 30, 1), (2**40 + 3, 85, 6), (2**32, 1000, 21), (5, 3, 3)]]
    (ROOT / "vectors.json").write_text(json.dumps({"harness": lm_eval.__version__, "written": WRITTEN, "cases": cases, "random": numbers}, indent=1, ensure_ascii=False) + "\n")


def draws(seed, n, k):
    generator = random.Random(seed)
    return [generator.sample(range(n), k) for _ in range(3)]


DOCS = {}
datasets.load_dataset = load_dataset
write_model(write_data())
measure()
