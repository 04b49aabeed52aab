# What the verdict has for others, each name with the module that has it; read by type checkers and, at run time, by `__init__.py`.

from .causes import causes_of as causes_of
from .judging import judge as judge
from .naming import MEASURED_NAMES as MEASURED_NAMES
from .naming import NAMES as NAMES
from .naming import NamingRow as NamingRow
from .records import CLASSES as CLASSES
from .records import Cause as Cause
from .records import FirstPlace as FirstPlace
from .records import Verdict as Verdict
from .records import Witness as Witness
