from .arena import Sanitized as Sanitized
from .arena import sanitized as sanitized
from .incident_words import describe as describe
from .incidents import BY_KERNEL as BY_KERNEL
from .incidents import KINDS as KINDS
from .incidents import Incident as Incident
from .watched import Watched as Watched
from .watched import watched as watched
