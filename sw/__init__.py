"""Front ends, passes, quantiser, compiler, model: the software of the accelerator.

ONNX Runtime reports to its makers unless this variable is set before it is imported, which only modules below do: it would
keep a device's number and a database in the user's cache folder. ``ORT_DISABLE_TELEMETRY=0`` in the environment allows it.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
