from .arena import Sanitized as Sanitized
from .arena import sanitized as sanitized
from .incidents import BY_KERNEL as BY_KERNEL
from .incidents import KINDS as KINDS
from .incidents import Incident as Incident
from .telling import describe as describe
