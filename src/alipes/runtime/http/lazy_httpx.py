"""httpx2 and the errors that derive from its own, imported when they are first used.

A request that succeeds without a proxy needs neither: docs/adr/0040-requests-without-importing-httpx2.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from alipes.kernel.lazy import lazy_object

if TYPE_CHECKING:
    import httpx2 as httpx2

    from alipes.runtime.http import errors as errors
else:
    httpx2 = lazy_object(lambda: import_module("httpx2"))
    errors = lazy_object(lambda: import_module("alipes.runtime.http.errors"))
