"""A pytest plugin that plants one mutant, named by DOVETAIL_MUTANT, into the hardware that tests import."""

import json
import os

from tests.mutation.mutants import Mutator, install

_file, _line, _column, _what = json.loads(os.environ["DOVETAIL_MUTANT"])
install(Mutator(planted=(_file, _line, _column, _what)))
