"""Training on real ggml: an engine graph in ggml's ops, under several plans of the same graph."""
