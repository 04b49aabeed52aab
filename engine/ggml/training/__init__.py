"""Training on real ggml: an engine graph in ggml's ops (`forward_lowering`), step by step, under several plans of the same graph."""
