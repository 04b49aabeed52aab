# What fuzzing has for others, each name with the module that has it; read by type checkers and, at run time, by `__init__.py`.

from .broken_property import BrokenProperty as BrokenProperty
from .campaigns import CampaignResult as CampaignResult
from .campaigns import campaign as campaign
from .corpus import Corpus as Corpus
from .examination import Examiner as Examiner
from .explorer import CampaignSpec as CampaignSpec
from .explorer import Explorer as Explorer
from .explorer import explore as explore
from .features import FEATURES as FEATURES
from .fuzz_case import FAILURES as FAILURES
from .fuzz_case import Answer as Answer
from .fuzz_case import Failure as Failure
from .fuzz_case import FuzzCase as FuzzCase
from .joining import JoinedFindings as JoinedFindings
from .properties import PROPERTIES as PROPERTIES
from .sources import SOURCES as SOURCES
from .sources import SourceChunk as SourceChunk
from .sources import chunks as chunks
from .tally import Tally as Tally
from .target import Target as Target
