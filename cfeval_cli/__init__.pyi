from cfeval_cli.api import evaluate as evaluate
from cfeval_cli.api import load as load

__version__: str
