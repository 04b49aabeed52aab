"""Training on real ggml: an engine graph built with ggml's ops and run under several plans."""
