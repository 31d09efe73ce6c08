"""The errors a user of the software layer may see.

The command line prints them as one line, without a traceback.
"""


class DovetailError(Exception):
    """Something the user can act on: the text is one line and says what to do instead."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


class NetworkError(DovetailError):
    """The network file is missing, malformed, or asks for something that is not supported."""


class CompileError(DovetailError):
    """A valid network that cannot be compiled for the chosen configuration."""


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def not_quantised(name: str) -> NetworkError:
    """What is said of a float network where a quantised one is wanted."""
    return NetworkError(
        f"{name}: network must be quantised to int8, not float; `dovetail quantise NETWORK --calibration X.npz "
        "--output Q.onnx` does that (--random N instead of --calibration, where there are no samples), and in Python "
        "dovetail.quantise(network, samples)"
    )
