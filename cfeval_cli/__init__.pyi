from cfeval_cli.api import Results as Results
from cfeval_cli.api import evaluate as evaluate
from cfeval_cli.api import load as load
from cfeval_cli.api import run as run

__version__: str
