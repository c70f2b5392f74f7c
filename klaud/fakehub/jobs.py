"""What a job does (first form)."""

from typing import Any

Handler = Any
