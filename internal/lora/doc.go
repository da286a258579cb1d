// Package lora reads and writes LoRA adapters and merges them into models.
//
// An [Adapter] is in a GGUF file (as llama.cpp reads it at run time) or in a folder as PEFT leaves it
// (adapter_config.json and adapter_model.safetensors); [Open] reads both, [WriteGGUF] and [WritePEFT] write them.
// Names and layouts in memory are those of GGUF. Values stay in the file until they are asked for.
//
// Merging computes W + sum of s_i * B_i * A_i for each tensor W that an adapter has a part for: [NewPlan] checks
// everything that can be checked without the data, [Plan.Run] streams the model through, a few rows at a time, into a
// new file. Source: tools/export-lora and src/llama-adapter.cpp of llama.cpp v0.5.0, PEFT's LoraLayer.
package lora
