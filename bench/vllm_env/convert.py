"""Converts a GGUF model to the folder form that vLLM loads; runs on the interpreter that has vLLM's packages."""

import sys


def main(gguf_folder: str, gguf_name: str, target: str) -> None:
    """Write weights (bfloat16), configuration, tokenizer and chat template to the folder `target`."""
    import torch  # noqa: PLC0415 - this module is imported only to be run
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - as above

    model = AutoModelForCausalLM.from_pretrained(
        gguf_folder,
        gguf_file=gguf_name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf_folder, gguf_file=gguf_name).save_pretrained(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
