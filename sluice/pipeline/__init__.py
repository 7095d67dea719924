"""The pipeline for programs that have a Spark session: `validate`, `rollup` and `whatif` take it, and return data frames.

They do not stop the session, and change neither its settings nor its log level. The session is one of classic Spark, or of Spark Connect.
Paths are those that the workers see. Errors are `BadInputError` (the text names the place and the remedy) and `IncompleteError`
(files are missing or differ from their manifests).
"""

from pipeline.errors import BadInputError, IncompleteError
from sluice.pipeline.rollup import Rollup, rollup
from sluice.pipeline.validate import Validation, validate
from sluice.pipeline.whatif import whatif

__all__ = ["BadInputError", "IncompleteError", "Rollup", "Validation", "rollup", "validate", "whatif"]
