#!/usr/bin/env python3
"""Reference values for models that differ from Llama: logits, loss, gradients and greedy text, computed
by transformers.

    python3 scripts/reference/variant_vectors.py                      # writes learn/model/llama/testdata
    python3 scripts/reference/variant_vectors.py --only NAME          # writes one case of it
    python3 scripts/reference/variant_vectors.py --random 8 --out DIR # random tiny models of each kind
    PSYCHE_MODEL_VECTORS=DIR go test ./learn/model/llama -run Vectors -v
    python3 scripts/reference/variant_vectors.py --load DIR           # loads that test's output in transformers

Needs: pip install torch==2.15.0 transformers==5.24.0 numpy, as for the committed values. Weights and
gradients have the names in checkpoints that transformers writes. A new kind is a function and an entry
of KINDS. A new case is an entry of CASES: the last one, because its position is the seed of its weights.
"""

import argparse
import json
import pathlib
import random
import struct
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/model/llama/testdata"
FIXED = "e_score_correction_bias"  # end of the names of tensors that are not trained
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
NULL = object()  # written as null; fields that are None are omitted


def base(r, kind, architecture):
    """Return a random shape, in the format of config.json."""
    heads = r.choice([2, 4, 6])
    c = dict(
        architectures=[architecture],
        model_type=kind,
        vocab_size=r.choice([32, 97]),
        hidden_size=heads * r.choice([6, 8]),
        intermediate_size=r.choice([20, 34]),
        num_hidden_layers=r.choice([2, 3]),
        num_attention_heads=heads,
        num_key_value_heads=r.choice([k for k in (1, 2, heads) if heads % k == 0]),
        max_position_embeddings=128,
        rms_norm_eps=r.choice([1e-5, 1e-6]),
        tie_word_embeddings=r.random() < 0.4,
        bos_token_id=1,
        eos_token_id=NULL,
        pad_token_id=NULL,
        rope_theta=r.choice([1e4, 1e6]),
    )
    scaling = r.choice([None, None, YARN, dict(rope_type="linear", factor=4.0)])
    if scaling:
        c["rope_scaling"] = scaling
    return c


def llama(r):
    c = base(r, "llama", "LlamaForCausalLM")
    c["rope_scaling"] = r.choice(
        [
            YARN,
            {**YARN, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
            {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
            {**YARN, "attention_factor": 0.9},
            dict(rope_type="dynamic", factor=2.0),
        ]
    )
    return c


def mistral(r):
    c = base(r, "mistral", "MistralForCausalLM")
    return {**c, "head_dim": r.choice([4, 8, 16]), "sliding_window": r.choice([2, 5, 9, 20])}


def qwen2(r):
    c = base(r, "qwen2", "Qwen2ForCausalLM")
    return {**c, "use_sliding_window": True, "sliding_window": r.choice([3, 6, 20]), "max_window_layers": r.choice([0, 1])}


def qwen3(r):
    c = base(r, "qwen3", "Qwen3ForCausalLM")
    c |= dict(head_dim=r.choice([4, 8, 16]), attention_bias=r.random() < 0.3)
    if r.random() < 0.3:
        c |= dict(use_sliding_window=True, sliding_window=r.choice([3, 6]), max_window_layers=1)
    return c


def qwen3_moe(r):
    c = base(r, "qwen3_moe", "Qwen3MoeForCausalLM")
    experts = r.choice([4, 6, 9])
    return c | dict(
        head_dim=r.choice([4, 8]),
        num_experts=experts,
        num_experts_per_tok=r.choice([1, 2, 3]),
        moe_intermediate_size=r.choice([6, 10]),
        norm_topk_prob=r.random() < 0.6,
        decoder_sparse_step=r.choice([1, 1, 2]),
        mlp_only_layers=r.choice([[], [], [1]]),
    )


def mixtral(r):
    c = base(r, "mixtral", "MixtralForCausalLM")
    return c | dict(
        head_dim=r.choice([4, 8]),
        num_local_experts=r.choice([3, 4, 8]),
        num_experts_per_tok=r.choice([1, 2, 3]),
        sliding_window=r.choice([NULL, NULL, 5]),
    )


def olmo2(r):
    return base(r, "olmo2", "Olmo2ForCausalLM") | dict(attention_bias=r.random() < 0.3)


def gemma2(r):
    c = base(r, "gemma2", "Gemma2ForCausalLM")
    c |= dict(head_dim=r.choice([4, 8, 16]), sliding_window=r.choice([3, 6, 20]), query_pre_attn_scalar=r.choice([4, 16]))
    c |= dict(attn_logit_softcapping=r.choice([NULL, 5.0, 50.0]), final_logit_softcapping=r.choice([NULL, 3.0, 30.0]))
    return c | dict(hidden_activation="gelu_pytorch_tanh", attention_bias=r.random() < 0.3)


def gemma3(r):
    c = base(r, "gemma3_text", "Gemma3ForCausalLM")
    c.pop("rope_scaling", None)
    c |= dict(head_dim=r.choice([4, 8, 16]), sliding_window=r.choice([3, 6, 20]), query_pre_attn_scalar=r.choice([4, 16]))
    c |= dict(sliding_window_pattern=r.choice([2, 3]), num_hidden_layers=3, hidden_activation="gelu_pytorch_tanh")
    scaling = r.choice([None, dict(rope_type="linear", factor=8.0), YARN])
    if r.random() < 0.5:
        c |= dict(rope_local_base_freq=r.choice([1e3, 1e4])) | ({"rope_scaling": scaling} if scaling else {})
    else:
        full, local = dict(rope_theta=1e6, **(scaling or {"rope_type": "default"})), dict(rope_type="default", rope_theta=1e4)
        c |= dict(rope_parameters=dict(full_attention=full, sliding_attention=local))
        c.pop("rope_theta")
    return c


def smollm3(r):
    c = base(r, "smollm3", "SmolLM3ForCausalLM") | dict(num_hidden_layers=3, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    c |= r.choice([dict(no_rope_layer_interval=2), dict(no_rope_layers=[1, 0, 1]), dict(no_rope_layers=[0, 0, 1])])
    if r.random() < 0.4:
        c |= dict(use_sliding_window=True, sliding_window=r.choice([3, 6]))
    return c


def longrope(r, pairs):
    """Return the rope_scaling of Phi 3, with a factor for each pair."""
    short, long = ([round(r.uniform(least, most), 3) for _ in range(pairs)] for least, most in ((1, 1.5), (1, 30)))
    c = dict(type="longrope", short_factor=short, long_factor=long)
    return c | r.choice([{}, dict(factor=4.0), dict(attention_factor=1.1)])


def phi3(r):
    c = base(r, "phi3", "Phi3ForCausalLM") | dict(sliding_window=r.choice([NULL, 5, 20]))
    c.pop("rope_scaling", None)
    return c


def phi3_long(r):
    """Return a Phi 3 in which part of each head rotates, often with other factors in long texts."""
    c = phi3(r)
    part = r.choice([0.5, 0.75, 1.0])
    c |= dict(partial_rotary_factor=part, hidden_size=8 * c["num_attention_heads"])
    if r.random() < 0.8:
        c |= dict(rope_scaling=longrope(r, int(8 * part) // 2), original_max_position_embeddings=r.choice([12, 24, 100]))
    return c


def granite(r):
    c = base(r, "granite", "GraniteForCausalLM") | dict(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    c |= dict(embedding_multiplier=r.choice([1.0, 12.0]), attention_multiplier=r.choice([1.0, 0.2]))
    return c | dict(residual_multiplier=r.choice([1.0, 0.22]), logits_scaling=r.choice([1.0, 8.0]))


def gpt_oss(r):
    c = base(r, "gpt_oss", "GptOssForCausalLM")
    heads = r.choice([2, 3, 4])
    scaling = r.choice([None, {**YARN, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}, dict(rope_type="default")])
    c |= dict(num_attention_heads=heads, num_key_value_heads=r.choice([1, heads]), head_dim=r.choice([4, 6, 8]), rope_scaling=scaling)
    c |= dict(sliding_window=r.choice([3, 6, 20]), attention_bias=r.random() < 0.7, num_local_experts=r.choice([3, 4, 9]))
    c |= dict(num_experts_per_tok=r.choice([1, 2, 3]), swiglu_limit=r.choice([0.7, 7.0]), swiglu_alpha=r.choice([1.0, 1.702]))
    return c


def gemma(r):
    c = base(r, "gemma", "GemmaForCausalLM") | dict(head_dim=r.choice([4, 8, 16]), attention_bias=r.random() < 0.3)
    return c | dict(hidden_act=r.choice(["gelu", "gelu_pytorch_tanh"]))


def llama4(r):
    c = base(r, "llama4_text", "Llama4ForCausalLM")
    heads = r.choice([2, 3, 4])
    c |= dict(num_attention_heads=heads, num_key_value_heads=r.choice([1, heads]), head_dim=r.choice([4, 6, 8]), num_hidden_layers=3)
    scaling = dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=r.choice([1.0, 4.0]), original_max_position_embeddings=32)
    c["rope_scaling"] = r.choice([None, scaling, YARN])
    c |= dict(intermediate_size_mlp=r.choice([22, 30]), num_local_experts=r.choice([3, 4, 9]), num_experts_per_tok=r.choice([1, 1, 2]))
    c |= dict(attention_chunk_size=r.choice([3, 7, 20, NULL]), floor_scale=r.choice([3, 8, 8192]), attn_scale=r.choice([0.1, 0.5]))
    c |= dict(use_qk_norm=r.random() < 0.7, attn_temperature_tuning=r.random() < 0.7, attention_bias=r.random() < 0.3)
    c |= r.choice([dict(no_rope_layer_interval=2), dict(no_rope_layers=[1, 0, 1]), dict(no_rope_layers=[])])
    return c | r.choice([dict(interleave_moe_layer_step=2), dict(moe_layers=[0, 2]), {}])


def qwen2_moe(r):
    c = base(r, "qwen2_moe", "Qwen2MoeForCausalLM")
    c |= dict(num_experts=r.choice([4, 6, 9]), num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([6, 10]))
    c |= dict(shared_expert_intermediate_size=r.choice([6, 14]), norm_topk_prob=r.random() < 0.4, qkv_bias=r.random() < 0.7)
    return c | dict(decoder_sparse_step=r.choice([1, 1, 2]), mlp_only_layers=r.choice([[], [], [1]]))


def olmo3(r):
    c = base(r, "olmo3", "Olmo3ForCausalLM") | dict(num_hidden_layers=r.choice([2, 4, 5]), attention_bias=r.random() < 0.3)
    c |= dict(sliding_window=r.choice([3, 6, 20]), rope_theta=5e5)
    if r.random() < 0.4:
        c["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(c["num_hidden_layers"])]
    scaling = c.get("rope_scaling")
    if r.random() < 0.4:
        full, local = dict(rope_theta=1e6, **(scaling or {"rope_type": "default"})), dict(rope_type="default", rope_theta=1e4)
        c |= dict(rope_parameters=dict(full_attention=full, sliding_attention=local))
        c.pop("rope_theta")
        c.pop("rope_scaling", None)
    return c


def olmoe(r):
    c = base(r, "olmoe", "OlmoeForCausalLM") | dict(attention_bias=r.random() < 0.3, clip_qkv=None)
    return c | dict(num_experts=r.choice([3, 4, 8]), num_experts_per_tok=r.choice([1, 2, 3]), norm_topk_prob=r.random() < 0.4)


def glm(r, kind="glm", architecture="GlmForCausalLM"):
    c = base(r, kind, architecture) | dict(head_dim=r.choice([8, 16]), partial_rotary_factor=r.choice([None, 0.25, 0.75, 1.0]))
    return c | dict(attention_bias=r.choice([None, True, False]))


def glm4(r):
    return glm(r, "glm4", "Glm4ForCausalLM")


def glm4_moe(r):
    c = glm(r, "glm4_moe", "Glm4MoeForCausalLM") | dict(use_qk_norm=r.random() < 0.6, moe_intermediate_size=r.choice([6, 10]))
    experts, groups, top = r.choice([(4, 1, 1), (6, 1, 1), (6, 3, 2), (8, 2, 1), (8, 4, 4)])
    c |= dict(n_routed_experts=experts, n_group=groups, topk_group=top, n_shared_experts=r.choice([1, 2]))
    c |= dict(num_experts_per_tok=r.choice([1, 2, 3]), routed_scaling_factor=r.choice([1.0, 2.5]), first_k_dense_replace=r.choice([0, 1]))
    return c | dict(norm_topk_prob=r.random() < 0.7)


def minimax_m2(r):
    c = base(r, "minimax_m2", "MiniMaxM2ForCausalLM") | dict(head_dim=r.choice([4, 8]), rotary_dim=r.choice([None, 2, 4]))
    return c | dict(num_local_experts=r.choice([3, 4, 8]), num_experts_per_tok=r.choice([1, 2, 3]))


def seed_oss(r):
    c = base(r, "seed_oss", "SeedOssForCausalLM") | dict(head_dim=r.choice([4, 8, 16]), attention_dropout=0.0, residual_dropout=0.0)
    return c | dict(attention_bias=r.choice([None, False]), attention_out_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)


KINDS = dict(
    llama=llama,
    mistral=mistral,
    qwen2=qwen2,
    qwen3=qwen3,
    qwen3_moe=qwen3_moe,
    mixtral=mixtral,
    olmo2=olmo2,
    gemma2=gemma2,
    gemma3=gemma3,
    smollm3=smollm3,
    phi3=phi3,
    phi3_long=phi3_long,
    granite=granite,
    gpt_oss=gpt_oss,
    gemma=gemma,
    llama4=llama4,
    qwen2_moe=qwen2_moe,
    olmo3=olmo3,
    olmoe=olmoe,
    glm=glm,
    glm4=glm4,
    glm4_moe=glm4_moe,
    minimax_m2=minimax_m2,
    seed_oss=seed_oss,
)

SMALL = dict(vocab_size=32, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)

PARTLY = dict(num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75)  # heads of 8 elements, of which 6 rotate
LONG = PARTLY | dict(
    original_max_position_embeddings=16,
    rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.25], long_factor=[1.5, 6.0, 20.0]),
)

THREE = dict(num_attention_heads=3, hidden_size=12)
GEMMA_BARE = {k: None for k in ("head_dim", "hidden_act", "tie_word_embeddings", "rms_norm_eps", "max_position_embeddings", "rope_theta")}
GEMMA_BARE |= dict(num_attention_heads=1, num_key_value_heads=1, hidden_size=4, rope_scaling=None)

GPT = dict(head_dim=6, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, swiglu_limit=0.7, tie_word_embeddings=False)
GPT_PUBLISHED = dict(
    attention_bias=True,
    attention_dropout=0.0,
    experts_per_token=2,
    hidden_act="silu",
    initial_context_length=32,
    layer_types=["sliding_attention", "full_attention"],
    output_router_logits=False,
    rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=32, rope_type="yarn", truncate=False),
    rope_theta=150000,
    router_aux_loss_coef=0.9,
    swiglu_limit=7.0,
)
GPT_ODD = dict(
    **THREE,
    num_key_value_heads=3,
    attention_bias=False,
    layer_types=["full_attention", "sliding_attention"],
    rope_scaling=dict(rope_type="default"),
    num_experts_per_tok=1,
    num_local_experts=5,
)
# Heads of 64 elements, and 128 experts, 4 of which are chosen.
GPT_BARE = {k: None for k in ("head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window", "swiglu_limit", "swiglu_alpha")}
GPT_BARE |= {k: None for k in ("attention_bias", "rope_scaling", "rope_theta", "rms_norm_eps", "max_position_embeddings", "tie_word_embeddings")}
GPT_BARE |= dict(num_attention_heads=2, num_key_value_heads=1, hidden_size=4, intermediate_size=2, num_hidden_layers=1)
GPT_NULL = dict(num_experts=6, num_local_experts=None, layer_types=NULL, rope_scaling=None, rope_parameters=NULL, tie_word_embeddings=True)

LLAMA4 = dict(head_dim=6, intermediate_size_mlp=22, num_local_experts=4, num_experts_per_tok=1, tie_word_embeddings=False, attention_bias=False)
LLAMA4 |= dict(floor_scale=3, attn_scale=0.5, attn_temperature_tuning=True, use_qk_norm=True, no_rope_layer_interval=None)
LLAMA4_PUBLISHED = dict(
    attention_chunk_size=7,
    for_llm_compressor=False,
    hidden_act="silu",
    interleave_moe_layer_step=1,
    moe_layers=[0, 1],
    no_rope_layers=[1, 0],
    output_router_logits=False,
    rope_scaling=dict(factor=16.0, high_freq_factor=1.0, low_freq_factor=1.0, original_max_position_embeddings=32, rope_type="llama3"),
    router_aux_loss_coef=0.001,
    router_jitter_noise=0.0,
)
LLAMA4_ODD = dict(**THREE, num_key_value_heads=1, num_experts_per_tok=2, use_qk_norm=False, attention_bias=True, attention_chunk_size=3)
LLAMA4_ODD |= dict(no_rope_layers=[], no_rope_layer_interval=2, moe_layers=[], interleave_moe_layer_step=None, rope_scaling=None)
LLAMA4_MIXED = dict(moe_layers=NULL, interleave_moe_layer_step=2, attention_chunk_size=NULL, attn_temperature_tuning=False, no_rope_layers=[0, 1])
LLAMA4_MIXED |= dict(layer_types=NULL, tie_word_embeddings=True, rope_scaling=YARN)
LLAMA4_BARE = {k: None for k in ("attention_chunk_size", "attn_temperature_tuning", "floor_scale", "attn_scale", "use_qk_norm", "head_dim", "moe_layers")}
LLAMA4_BARE |= {k: None for k in ("interleave_moe_layer_step", "no_rope_layers", "no_rope_layer_interval", "attention_bias", "rope_theta")}
LLAMA4_BARE |= {k: None for k in ("rope_scaling", "rms_norm_eps", "max_position_embeddings", "num_experts_per_tok", "num_local_experts")}
LLAMA4_BARE |= dict(num_attention_heads=1, num_key_value_heads=1, hidden_size=4, intermediate_size=2, intermediate_size_mlp=3, num_hidden_layers=4)

# Settings in published configurations that have no effect here.
PUBLISHED = dict(
    attention_dropout=0.0,
    hidden_act="silu",
    initializer_range=0.02,
    pad_token_id=31,
    eos_token_id=[31],
    bos_token_id=NULL,
    rope_scaling=NULL,
    torch_dtype="bfloat16",
    transformers_version="4.55.0",
    use_cache=True,
    tie_word_embeddings=False,
    max_position_embeddings=128,
)
ODD = dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=18)
QWEN2_MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, shared_expert_intermediate_size=10, rope_scaling=None)
QWEN2_MOE |= dict(qkv_bias=None, norm_topk_prob=None, decoder_sparse_step=None, mlp_only_layers=None)
OLMO3 = dict(attention_bias=None, layer_types=None, rope_scaling=None, rope_parameters=None, rope_theta=5e5, sliding_window=4, num_hidden_layers=2)
TWO_KINDS = dict(layer_types=["sliding_attention", "full_attention"])
OLMOE = dict(num_experts=4, num_experts_per_tok=2, intermediate_size=8, attention_bias=None, norm_topk_prob=None, rope_scaling=None)
GLM = dict(head_dim=8, partial_rotary_factor=None, attention_bias=None, rope_scaling=None)
GLM4_MOE = GLM | dict(n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2, moe_intermediate_size=6, n_shared_experts=None)
GLM4_MOE |= dict(routed_scaling_factor=2.5, first_k_dense_replace=None, norm_topk_prob=None, use_qk_norm=True)
MINIMAX_M2 = dict(head_dim=8, rotary_dim=None, num_local_experts=4, num_experts_per_tok=2, intermediate_size=8, rope_scaling=None)
SEED_OSS = dict(head_dim=8, attention_bias=None, attention_out_bias=None, mlp_bias=None, rope_scaling=None)
FULL = dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32)
PARTIAL = dict(rope_theta=1e5, partial_rotary_factor=0.25, rope_type="linear", factor=2.0)

# name: (kind, additional configuration, batch, tokens)
CASES = {
    "yarn": ("llama", dict(rope_scaling={**YARN, "beta_fast": 16.0}), 1, 40),
    "mistral_window": ("mistral", dict(head_dim=6, sliding_window=5, rope_scaling=None), 2, 12),
    "qwen2_window": ("qwen2", dict(sliding_window=4, max_window_layers=1, rope_scaling=None), 1, 40),
    "qwen3": ("qwen3", dict(head_dim=8, use_sliding_window=False, attention_bias=False, tie_word_embeddings=True, rope_scaling=None), 2, 9),
    "qwen3_yarn": ("qwen3", dict(head_dim=6, use_sliding_window=False, attention_bias=True, rope_scaling=YARN), 1, 40),
    "qwen3_moe": (
        "qwen3_moe",
        dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=6, norm_topk_prob=True, rope_scaling=None),
        2,
        9,
    ),
    "qwen3_moe_mixed": (
        "qwen3_moe",
        dict(num_experts=4, num_experts_per_tok=3, moe_intermediate_size=6, norm_topk_prob=False, mlp_only_layers=[1], rope_scaling=None),
        1,
        7,
    ),
    "mixtral": ("mixtral", dict(head_dim=4, num_local_experts=4, num_experts_per_tok=2, sliding_window=NULL, rope_scaling=None), 2, 9),
    "olmo2": ("olmo2", dict(attention_bias=False, rope_scaling=None), 2, 9),
    "gemma2": ("gemma2", dict(head_dim=6, sliding_window=4, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, rope_scaling=None), 2, 9),
    "gemma3": ("gemma3", dict(head_dim=6, num_hidden_layers=2, sliding_window=4, sliding_window_pattern=2), 2, 9),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0], use_sliding_window=False, attention_bias=False, mlp_bias=False, rope_scaling=None), 2, 9),
    "phi3": ("phi3", dict(sliding_window=5), 2, 9),
    "granite": (
        "granite",
        dict(
            embedding_multiplier=12.0,
            attention_multiplier=0.2,
            residual_multiplier=0.22,
            logits_scaling=8.0,
            attention_bias=False,
            mlp_bias=False,
            rope_scaling=None,
        ),
        2,
        9,
    ),
    "dynamic": ("llama", dict(rope_scaling=dict(rope_type="dynamic", factor=2.0)), 1, 40),
    "phi3_part": ("phi3", dict(**PARTLY, sliding_window=NULL), 2, 9),
    # The text of 37 tokens exceeds the original context. Within the original context the
    # computation differs.
    "phi3_longrope": ("phi3", dict(**LONG, sliding_window=NULL), 2, 9),
    "phi3_longrope_long": ("phi3", dict(**LONG, sliding_window=5), 1, 40),
    "gpt_oss": ("gpt_oss", GPT | GPT_PUBLISHED, 1, 30),
    "gpt_oss_odd": ("gpt_oss", GPT | GPT_ODD, 2, 9),
    "gpt_oss_bare": ("gpt_oss", GPT_BARE, 2, 7),
    "gpt_oss_null": ("gpt_oss", GPT | GPT_NULL, 1, 12),
    "gemma": ("gemma", dict(head_dim=6, hidden_act="gelu", hidden_activation=NULL, attention_bias=False, rope_scaling=None), 2, 9),
    "gemma_odd": ("gemma", dict(**THREE, num_key_value_heads=1, head_dim=6, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=False), 2, 9),
    "gemma_bias": ("gemma", dict(head_dim=8, num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True, rope_scaling=YARN), 1, 40),
    "gemma_bare": ("gemma", GEMMA_BARE, 1, 7),
    "llama4": ("llama4", LLAMA4 | LLAMA4_PUBLISHED, 1, 30),
    "llama4_odd": ("llama4", LLAMA4 | LLAMA4_ODD, 2, 9),
    "llama4_mixed": ("llama4", LLAMA4 | LLAMA4_MIXED, 2, 9),
    "llama4_bare": ("llama4", LLAMA4_BARE, 1, 7),
    "qwen2_moe": ("qwen2_moe", QWEN2_MOE, 2, 9),
    "qwen2_moe_odd": ("qwen2_moe", QWEN2_MOE | ODD | dict(tie_word_embeddings=True, norm_topk_prob=True, mlp_only_layers=[1]), 1, 7),
    "qwen2_moe_yarn": ("qwen2_moe", QWEN2_MOE | dict(qkv_bias=False, decoder_sparse_step=2, num_experts_per_tok=1, rope_scaling=YARN), 1, 40),
    "qwen2_moe_published": (
        "qwen2_moe",
        QWEN2_MOE
        | PUBLISHED
        | dict(decoder_sparse_step=1, max_window_layers=21, norm_topk_prob=False, num_key_value_heads=4, output_router_logits=False)
        | dict(rope_theta=1000000.0, router_aux_loss_coef=0.001, sliding_window=32768, use_sliding_window=False, rms_norm_eps=1e-06),
        2,
        9,
    ),
    "olmo3": ("olmo3", OLMO3 | dict(num_hidden_layers=4, rope_scaling=YARN, rms_norm_eps=None), 2, 12),
    "olmo3_odd": ("olmo3", OLMO3 | ODD | TWO_KINDS | dict(num_key_value_heads=NULL, attention_bias=True, tie_word_embeddings=True), 2, 9),
    "olmo3_ropes": (
        "olmo3",
        OLMO3 | TWO_KINDS | dict(rope_theta=None, rope_parameters=dict(full_attention=FULL, sliding_attention=dict(rope_theta=1e4))),
        1,
        40,
    ),
    "olmo3_full": ("olmo3", OLMO3 | dict(layer_types=["full_attention"] * 2, rope_theta=1e4), 2, 9),
    "olmo3_published": (
        "olmo3",
        OLMO3
        | PUBLISHED
        | dict(attention_bias=False, num_key_value_heads=4, num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"])
        | dict(rope_scaling={**YARN, "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1}, rope_theta=500000),
        1,
        40,
    ),
    "olmoe": ("olmoe", OLMOE, 2, 9),
    "olmoe_odd": (
        "olmoe",
        OLMOE | ODD | dict(num_key_value_heads=NULL, attention_bias=True, norm_topk_prob=True, tie_word_embeddings=True),
        1,
        7,
    ),
    "olmoe_linear": ("olmoe", OLMOE | dict(num_experts_per_tok=3, rope_scaling=dict(rope_type="linear", factor=4.0)), 1, 40),
    "olmoe_published": (
        "olmoe",
        OLMOE
        | PUBLISHED
        | dict(attention_bias=False, clip_qkv=NULL, norm_topk_prob=False, num_key_value_heads=4, output_router_logits=False)
        | dict(rms_norm_eps=1e-05, rope_theta=10000.0, router_aux_loss_coef=0.01),
        2,
        9,
    ),
    "glm": ("glm", GLM, 2, 9),
    "glm_odd": ("glm", GLM | ODD | dict(partial_rotary_factor=1.0, attention_bias=False, tie_word_embeddings=True), 2, 9),
    "glm_yarn": ("glm", GLM | dict(partial_rotary_factor=0.75, rope_scaling=YARN), 1, 40),
    "glm_parameters": ("glm", GLM | dict(head_dim=16, partial_rotary_factor=0.75, rope_theta=None, rope_parameters=PARTIAL), 2, 9),
    "glm_published": (
        "glm",
        GLM | PUBLISHED | dict(attention_bias=True, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-07, rope_theta=10000.0),
        2,
        9,
    ),
    "glm4": ("glm4", GLM, 2, 9),
    "glm4_odd": ("glm4", GLM | ODD | dict(partial_rotary_factor=1.0, attention_bias=False, tie_word_embeddings=True), 2, 9),
    "glm4_yarn": ("glm4", GLM | dict(partial_rotary_factor=0.75, rope_scaling=YARN), 1, 40),
    "glm4_parameters": ("glm4", GLM | dict(head_dim=16, partial_rotary_factor=0.75, rope_theta=None, rope_parameters=PARTIAL), 2, 9),
    "glm4_published": (
        "glm4",
        GLM | PUBLISHED | dict(attention_bias=False, partial_rotary_factor=0.5, rms_norm_eps=1e-05, rope_theta=10000.0),
        2,
        9,
    ),
    "glm4_moe": ("glm4_moe", GLM4_MOE | dict(attention_bias=True), 2, 9),
    "glm4_moe_odd": (
        "glm4_moe",
        GLM4_MOE
        | ODD
        | dict(partial_rotary_factor=1.0, first_k_dense_replace=0, n_shared_experts=2, norm_topk_prob=False, use_qk_norm=False)
        | dict(tie_word_embeddings=True, n_routed_experts=4, n_group=1, topk_group=1, head_dim=None),
        1,
        7,
    ),
    "glm4_moe_yarn": ("glm4_moe", GLM4_MOE | dict(partial_rotary_factor=0.75, num_experts_per_tok=3, use_qk_norm=None, rope_scaling=YARN), 1, 40),
    "glm4_moe_published": (
        "glm4_moe",
        GLM4_MOE
        | PUBLISHED
        | dict(attention_bias=True, partial_rotary_factor=0.5, n_group=1, topk_group=1, n_shared_experts=1, norm_topk_prob=True)
        | dict(num_nextn_predict_layers=1, first_k_dense_replace=1, rms_norm_eps=1e-05, rope_theta=1000000),
        2,
        9,
    ),
    "minimax_m2": ("minimax_m2", MINIMAX_M2, 2, 9),
    "minimax_m2_odd": ("minimax_m2", MINIMAX_M2 | ODD | dict(rotary_dim=6, num_experts_per_tok=3, tie_word_embeddings=True), 1, 7),
    "minimax_m2_yarn": ("minimax_m2", MINIMAX_M2 | dict(rotary_dim=4, rope_scaling=YARN), 1, 40),
    "minimax_m2_published": (
        "minimax_m2",
        MINIMAX_M2
        | PUBLISHED
        | dict(rotary_dim=4, attn_type_list=[1, 1], qk_norm_type="per_layer", use_qk_norm=True, use_routing_bias=True)
        | dict(num_mtp_modules=3, scoring_func="sigmoid", shared_intermediate_size=0, rms_norm_eps=1e-06, rope_theta=5000000),
        2,
        9,
    ),
    "seed_oss": ("seed_oss", SEED_OSS, 2, 9),
    "seed_oss_odd": ("seed_oss", SEED_OSS | ODD | dict(attention_bias=False, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True), 2, 9),
    "seed_oss_yarn": ("seed_oss", SEED_OSS | dict(rope_scaling=YARN), 1, 40),
    "seed_oss_published": (
        "seed_oss",
        SEED_OSS
        | PUBLISHED
        | dict(attention_bias=True, attention_out_bias=False, mlp_bias=False, rope_scaling=dict(rope_type="default"), rope_theta=10000000.0),
        2,
        9,
    ),
}


# The seed of a case is its predecessor's plus one, with these exceptions.
SEEDS = {"qwen2_moe": 18}


def read(path):
    """Return the tensors of a safetensors file, which must be F32."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[t["data_offsets"][0] : t["data_offsets"][1]], dtype=np.float32).reshape(t["shape"])
        for name, t in header.items()
    }


def write(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, array in sorted(tensors.items()):
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        blobs.append(np.ascontiguousarray(array).tobytes())
        header[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[offset, offset + len(blobs[-1])])
        offset += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return read(pathlib.Path(folder, "model.safetensors"))


def compute(c, batch, tokens):
    given = {k: None if v is NULL else v for k, v in c.items() if v is not None}
    with tempfile.TemporaryDirectory() as folder:  # transformers reads the model from a file
        pathlib.Path(folder, "config.json").write_text(json.dumps(given))
        config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).train()
    model.set_experts_implementation("eager")  # the default does not support such small widths
    one_more = c["model_type"].startswith("gemma")  # norms multiply by weight + 1
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1 if p.dim() == 1 and not name.endswith("bias") and not one_more else 0))
        for name, b in model.named_buffers():
            if name.endswith(FIXED):
                b.copy_(torch.randn_like(b) * 0.1)
    vectors = {"weight/" + k: v for k, v in saved(model).items()}
    known = given.get("pad_token_id") or c["vocab_size"]  # in transformers the padding token's embedding has no gradient
    ids, targets = (torch.randint(0, known, (batch, tokens)) for _ in range(2))
    targets[0, 1] = -100
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()
    model.eval()
    model.generation_config.eos_token_id = None  # the text continues after an end token
    with torch.no_grad():
        greedy = model.generate(ids[:1, :5], max_new_tokens=32, do_sample=False, use_cache=False)[0]
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    vectors |= {"gradient/" + k: v for k, v in saved(model).items() if not k.endswith(FIXED)}
    vectors |= dict(ids=ids.numpy(), targets=targets.numpy(), logits=logits.detach().numpy(), greedy=greedy.numpy())
    vectors["loss"] = np.array([loss.item()], dtype=np.float32)
    return given, vectors


def store(folder, c, batch, tokens):
    given, vectors = compute(c, batch, tokens)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(given, indent=2) + "\n")
    write(folder / "vectors.safetensors", vectors)
    print(f"{folder.name}: loss {vectors['loss'][0]:.6f}, {len(vectors)} tensors")


def load(out):
    """Loads the Go test's output, and generates text from it."""
    for folder in sorted(out.glob("*/written")):
        options = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
        wrong = {k: v for k, v in info.items() if v}
        raw = (folder.parent / "vectors.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", raw[:8])
        first, last = json.loads(raw[8 : 8 + size])["greedy"]["data_offsets"]
        want = np.frombuffer(raw[8 + size + first : 8 + size + last], dtype=np.int64).tolist()
        model.generation_config.eos_token_id = None
        got = model.generate(torch.tensor([want[:5]]), max_new_tokens=32, do_sample=False, use_cache=False)[0].tolist()
        written, again = read(folder / "model.safetensors"), saved(model)
        same = written.keys() == again.keys() and all(np.array_equal(written[k], again[k]) for k in written)
        print(
            f"{folder.parent.name}: loads{' with ' + str(wrong) if wrong else ''}, text {'equal' if got == want else 'DIFFERS'},"
            f" saved again {'equal' if same else 'DIFFERS'}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="N", help="N random models of each kind instead")
    parser.add_argument("--only", nargs="*", help="these cases, or these kinds with --random")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("--load", type=pathlib.Path, metavar="DIR")
    a = parser.parse_args()
    known = KINDS if a.random else CASES
    for name in a.only or []:
        if name not in known:
            parser.error(f"--only {name}: want one of {', '.join(known)}")
    if a.load:
        return load(a.load)
    if a.random:
        for kind, make in KINDS.items():
            for n in range(a.random):
                if a.only and kind not in a.only:
                    continue
                r = random.Random(f"{kind} {n}")
                torch.manual_seed(n)
                store(a.out / f"{kind}-{n}", make(r), r.choice([1, 2]), r.choice([7, 30, 60]))
        return
    seed = -1
    for name, (kind, changes, batch, tokens) in CASES.items():
        seed = SEEDS.get(name, seed + 1)
        if a.only and name not in a.only:
            continue
        torch.manual_seed(seed)
        store(a.out / name, {**KINDS[kind](random.Random(name)), **SMALL, **changes}, batch, tokens)


if __name__ == "__main__":
    main()
