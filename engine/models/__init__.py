"""Models built from the ops of the engine; each as its training graph."""
