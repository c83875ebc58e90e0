# SPDX-License-Identifier: GPL-2.0-or-later
"""What the hardware sees, decoded: registers, entities, contexts, page and permission tables, queues, events.

The only source is a ``read(addr, length)`` callable plus register values (:class:`View`), so the same code
serves a running VM, a memory dump, a byte image and a qtest machine.  Every decoded object keeps its guest
address and raw words.  Damage never stops a decoder and never becomes a zero: it is listed as a
:class:`Problem`.
"""

from ummulab.decode.view import Problem, View

__all__ = ["Problem", "View"]
