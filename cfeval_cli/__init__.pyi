from cfeval_cli.python import evaluate as evaluate
from cfeval_cli.python import load as load

__version__: str
