#!/usr/bin/env python3
"""Makes tests/family: small random members of the Laguna family in the published on-disk formats, each
with what transformers computes for it in float32.

A member is an archive NAME.tar.xz of config.json, model.safetensors and golden.safetensors: `ids` I32
[120], `logits` F32 [120, vocab] and `taps_last` F32 [layers, hidden], the residual after each layer at
the last position. Weights that are not quantised have two bits of mantissa, so that the archives are
small. Needs PyTorch, transformers 5.17 and safetensors; takes a minute.

usage: make_family.py OUTPUT_FOLDER
"""

import io
import json
import sys
import tarfile
from pathlib import Path

import torch
from safetensors.torch import save
from transformers import LagunaConfig, LagunaForCausalLM

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
POSITIONS = 120
IGNORED = ["lm_head", "re:.*self_attn.*", r"re:.*mlp\.gate$", "re:.*shared_expert.*",
           r"re:model\.layers\.[01]\.mlp\.(gate|up|down)_proj"]


def yarn(factor, original, beta_fast, attention_factor):
    return {"rope_type": "yarn", "rope_theta": 500000.0, "partial_rotary_factor": 0.5, "factor": factor,
            "original_max_position_embeddings": original, "beta_fast": beta_fast, "beta_slow": 1.0,
            "attention_factor": attention_factor}


def config(full_rope, **changes):
    """The shape of S-2.1 in small: a full layer, then three sliding ones; six or nine heads to a KV head."""
    fields = {
        "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_attention_heads_per_layer": [6, 9, 9, 9],
        "num_key_value_heads": 1, "head_dim": 128, "max_position_embeddings": 4096,
        "sliding_window": 32, "rms_norm_eps": 1e-6,
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3, "num_experts": 8, "num_experts_per_tok": 4,
        "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
        "moe_routed_scaling_factor": 2.5, "gating": "per-head",
        "rope_parameters": {
            "full_attention": full_rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
                                  "partial_rotary_factor": 1.0}}}
    return {**fields, **changes}


S_ROPE = yarn(32.0, 128, 32.0, 1.3465735902799727)
MEMBERS = {
    "s-nvfp4": (config(S_ROPE, num_experts=16, num_experts_per_tok=10), "nvfp4"),
    # The attention factor that XS.2 states is not the one that its yarn factor would give.
    "xs2-nvfp4": (config(yarn(32.0, 64, 64.0, 1.0), num_experts_per_tok=6,
                         num_attention_heads_per_layer=[6, 8, 8, 8]), "nvfp4"),
    "m1-bf16": (config(yarn(64.0, 64, 64.0, 1.4158883083359672), num_attention_heads=8,
                       num_attention_heads_per_layer=[8] * 4, layer_types=["full_attention"] * 4,
                       mlp_layer_types=["dense"] * 2 + ["sparse"] * 2, gating="per-element"), "bf16"),
    "softcap-bf16": (config(S_ROPE, num_key_value_heads=2, num_attention_heads=4,
                            num_attention_heads_per_layer=[4, 6, 6, 6],
                            moe_router_logit_softcapping=2.0), "bf16"),
    "s-fp8": (config(S_ROPE), "fp8"),
    # Layer 3's experts are BF16, the others' NVFP4.
    "s-mixed": (config(S_ROPE), "mixed"),
}


def short(weight):
    """Two bits of mantissa after the first."""
    mantissa, exponent = torch.frexp(weight)
    return torch.ldexp(torch.round(mantissa * 8) / 8, exponent)


def randomise(model):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            if name.endswith("e_score_correction_bias"):
                weight.copy_(0.05 * noise)
                continue
            if "norm" in name:
                noise = 1 + 0.2 * noise
            elif "embed" not in name:
                noise = noise * (2.0 if "lm_head" in name else 1.0) * weight.shape[-1] ** -0.5
            weight.copy_(short(noise))


def to_nvfp4(weight):
    """Tensors of a matrix and the matrix that they stand for."""
    divisor = 448.0 * 6.0 / weight.abs().max()
    groups = weight.unflatten(-1, (-1, 16))
    scales = (groups.abs().amax(-1) / 6.0 * divisor).clamp(2.0**-9, 448.0).to(torch.float8_e4m3fn)
    step = (scales.float() / divisor).unsqueeze(-1)
    magnitude = (groups.abs() / step).unsqueeze(-1).sub(E2M1).abs().argmin(-1)
    codes = (magnitude + 8 * (groups < 0)).to(torch.uint8).flatten(-2)
    meant = (torch.where(groups < 0, -E2M1[magnitude], E2M1[magnitude]) * step).flatten(-2)
    return {"weight_packed": (codes[:, 0::2] | (codes[:, 1::2] << 4)).contiguous(),
            "weight_scale": scales.contiguous(), "weight_global_scale": divisor.reshape(()).float(),
            "input_global_scale": torch.tensor(67.2)}, meant


def to_fp8(weight):
    rows, columns = weight.shape
    blocks = weight.view(rows // 128, 128, columns // 128, 128)
    scales = blocks.abs().amax((1, 3)) / 448.0
    codes = (blocks / scales[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    meant = (codes.float() * scales[:, None, :, None]).reshape(rows, columns)
    return {"weight": codes.view(rows, columns).contiguous(), "weight_scale": scales.contiguous()}, meant


def to_bf16(weight):
    return {"weight": weight.bfloat16().contiguous()}, weight


def expert_tensors(name, stacked, form):
    """The per-expert tensors of a stacked parameter, which becomes what they stand for."""
    layer = int(name.split(".")[2])
    if form == "mixed":
        form = "bf16" if layer == 3 else "nvfp4"
    quantise = {"bf16": to_bf16, "fp8": to_fp8, "nvfp4": to_nvfp4}[form]
    prefix = name.rsplit(".", 1)[0]
    tensors = {}
    parts = {"down_proj": stacked}
    if name.endswith("gate_up_proj"):
        half = stacked.shape[1] // 2
        parts = {"gate_proj": stacked[:, :half], "up_proj": stacked[:, half:]}
    for part, experts in parts.items():
        for index in range(experts.shape[0]):
            stored, meant = quantise(experts[index].clone())
            experts[index].copy_(meant)
            for suffix, tensor in stored.items():
                tensors[f"{prefix}.{index}.{part}.{suffix}"] = tensor
    return tensors


def published_tensors(model, form, layers):
    tensors = {}
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name.endswith("mlp.gate.e_score_correction_bias"):
                tensors[name.replace("mlp.gate.", "mlp.experts.")] = weight.float().clone()
            elif ".mlp.experts." in name:
                tensors.update(expert_tensors(name, weight, form))
            else:
                name = name.replace("shared_experts", "shared_expert")
                tensors[name] = weight.bfloat16().contiguous().clone()
    for layer in range(layers):
        for name in ("k_scale", "v_scale"):
            tensors[f"model.layers.{layer}.self_attn.{name}"] = torch.ones(1).bfloat16()
    return tensors


def quantization(form):
    if form == "bf16":
        return {}
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
    if form != "fp8":
        weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    ignored = IGNORED + ([r"re:model\.layers\.3\.mlp\.experts.*"] if form == "mixed" else [])
    group = {"targets": ["Linear"], "weights": {**weights, "symmetric": True, "dynamic": False}}
    return {"quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized" if form == "fp8" else "nvfp4-pack-quantized",
        "config_groups": {"group_0": group}, "ignore": ignored}}


def golden(model, layers):
    ids = torch.randint(8, 256, (1, POSITIONS), generator=torch.Generator().manual_seed(3))
    taps = {}

    def keep(index):
        def hook(_module, _inputs, output):
            residual = output[0] if isinstance(output, tuple) else output
            taps[index] = residual.reshape(-1, residual.shape[-1])[-1]
        return hook

    for index, layer in enumerate(model.model.layers):
        layer.register_forward_hook(keep(index))
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0].float()
    assert torch.isfinite(logits).all()
    return {"ids": ids[0].int(), "logits": logits.contiguous(),
            "taps_last": torch.stack([taps[i] for i in range(layers)]).float().contiguous()}


def add(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def main():
    output = Path(sys.argv[1])
    for seed, (name, (fields, form)) in enumerate(MEMBERS.items()):
        torch.manual_seed(seed)
        layers = fields["num_hidden_layers"]
        model = LagunaForCausalLM(LagunaConfig(**fields, attn_implementation="eager")).float().eval()
        randomise(model)
        tensors = published_tensors(model, form, layers)
        stored = {**fields, **quantization(form), "architectures": ["LagunaForCausalLM"],
                  "model_type": "laguna", "torch_dtype": "bfloat16", "hidden_act": "silu",
                  "tie_word_embeddings": False, "bos_token_id": 2, "eos_token_id": [2, 5]}
        with tarfile.open(output / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            add(archive, f"{name}/config.json", json.dumps(stored, indent=1).encode())
            for file, content in (("model", tensors), ("golden", golden(model, layers))):
                add(archive, f"{name}/{file}.safetensors", save(content, metadata={"format": "pt"}))
        print(name, form, len(tensors), "tensors", (output / f"{name}.tar.xz").stat().st_size, "bytes",
              flush=True)


if __name__ == "__main__":
    main()
