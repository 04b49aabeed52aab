"""A reverse-mode autodiff and training engine whose memory is planned from outside."""
