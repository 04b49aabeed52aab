"""PyTorch programs under the eye of this project: recorded while they run (`record`).

torch itself is imported when a recording begins, and by nothing else here.
"""

from allocsim.torch.eager_recording import EagerRecording, record

__all__ = ["EagerRecording", "record"]
