"""Writes a tiny Llama of random weights for `--load-format dummy`, a tokenizer of single characters, and an adapter.

It runs on the interpreter that has vLLM's packages. A character of printable ASCII is one token, so a prompt's length
is known; others are dropped. The model speaks thousands of tokens a second and says nothing.
"""

import sys
from pathlib import Path

HIDDEN, HEADS, LAYERS = 128, 4, 2
"""vLLM's attention on the CPU wants heads of at least 32."""
CONTEXT_TOKENS = 8_192
RANK = 8
END = "<|end|>"
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_model(target: Path) -> None:
    """Configuration and tokenizer; the weights are made when it is loaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - only vLLM's packages have it
    from transformers import LlamaConfig, PreTrainedTokenizerFast  # noqa: PLC0415 - as above

    # No other bytes: most orders of those are no UTF-8, over which vLLM's detokenizer takes ever longer.
    letters = [*map(chr, range(ord("!"), ord("~") + 1)), "Ġ", "Ċ"]
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END, chat_template=CHAT)
    fast.save_pretrained(target)
    LlamaConfig(
        vocab_size=len(fast),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(target)


def write_adapter(target: Path) -> None:
    """A LoRA adapter of random weights for that model's queries and values."""
    import torch  # noqa: PLC0415 - as above
    from safetensors.torch import save_file  # noqa: PLC0415 - as above

    torch.manual_seed(0)
    weights = {}
    for layer in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{stem}.lora_A.weight"] = torch.randn(RANK, HIDDEN)
            weights[f"{stem}.lora_B.weight"] = torch.randn(HIDDEN, RANK)
    target.mkdir(parents=True, exist_ok=True)
    save_file(weights, target / "adapter_model.safetensors")
    (target / "adapter_config.json").write_text(
        f'{{"peft_type": "LORA", "r": {RANK}, "lora_alpha": {RANK}, "target_modules": ["q_proj", "v_proj"],'
        ' "bias": "none", "task_type": "CAUSAL_LM"}'
    )


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
    write_adapter(Path(sys.argv[1]) / "adapter")
