"""The sizes of the LoRA step that `lora_systems.py` runs through several systems."""

BATCH, T, D, FF, VOCAB, RANK = 2, 64, 128, 512, 512, 8
SCALE, RATE = 2.0, 0.01
