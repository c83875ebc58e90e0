# SPDX-License-Identifier: GPL-2.0-or-later
"""The reference model: what the UMMU must answer to one request, as a readable specification.

Pure functions over a memory image and register state.  Section numbers ("5.1", "6.2") are those of the
hardware description the project is written from; every step and every refusal names its section.  The model
was written from that text alone and shares no code with the device, so comparing the two means something.

The model has no caches: it gives the answer a device must give when nothing stale is in use.
"""

from ummulab.model.resolve import MAX_PIECES, Resolver, resolve
from ummulab.model.state import Access, Request, State
from ummulab.model.verdict import Extent, Outcome, Refusal, Step, Update, Verdict

__all__ = [
    "MAX_PIECES",
    "Access",
    "Extent",
    "Outcome",
    "Refusal",
    "Request",
    "Resolver",
    "State",
    "Step",
    "Update",
    "Verdict",
    "resolve",
]
