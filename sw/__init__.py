"""Front ends, passes, quantiser, compiler, model, zoo: the software of the accelerator.

ONNX Runtime reports to its makers, and keeps a device's number and a database in the user's cache folder, unless this
variable is set before it is imported. Only modules below import it. ``ORT_DISABLE_TELEMETRY=0`` allows the reports.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
