#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A stand-in for QEMU: takes its command line, speaks QMP, and misbehaves as told.

``FAKE_QEMU`` holds a JSON object: ``die`` = "start" | "greeting" | "capabilities", ``silent`` = true (no
greeting), ``mute`` = [commands that get no answer], ``stop_on`` = command at which the process stops
itself, ``flood`` = number of events after the capabilities, ``panic_on`` = command at which the "guest" panics
and QEMU exits at once, ``klog`` = text for the serial port at the start, ``no_shell`` = true.
The command port is served by a real shell.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import Any

MODE: dict[str, Any] = json.loads(os.environ.get("FAKE_QEMU", "{}"))
PANIC = """\
[    1.5] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010
[    1.5] Internal error: Oops: 0000000096000004 [#1] SMP
[    1.5] Call trace:
[    1.5]  ummu_event_thread+0x40/0x100
[    1.5] Kernel panic - not syncing: Oops: Fatal exception
[    1.5] ---[ end Kernel panic - not syncing: Oops: Fatal exception ]---
"""


def channels(argv: list[str]) -> dict[str, socket.socket]:
    """The sockets given as -chardev socket,id=NAME,fd=N."""
    found = {}
    for arg in argv:
        match = re.fullmatch(r"socket,id=(\w+),fd=(\d+)", arg)
        if match:
            found[match[1]] = socket.socket(fileno=int(match[2]))
    return found


def serial_port(argv: list[str]) -> io.FileIO:
    """The pipe given as -chardev file,id=klog,path=/proc/self/fd/N,…"""
    match = next(filter(None, (re.match(r"file,id=klog,path=/proc/self/fd/(\d+),", arg) for arg in argv)))
    return io.FileIO(int(match[1]), "w")


def end(code: int, text: str = "") -> None:
    """Leave at once, as QEMU does."""
    if text:
        print(text, file=sys.stderr, flush=True)
    os._exit(code)


class Monitor:
    """The QMP side."""

    def __init__(self, qmp: socket.socket, serial: io.FileIO) -> None:
        self.qmp = qmp
        self.serial = serial

    def send(self, message: dict[str, Any]) -> None:
        self.qmp.sendall(json.dumps(message).encode() + b"\r\n")

    def event(self, name: str, **data: Any) -> None:
        self.send({"event": name, "data": data, "timestamp": {"seconds": 1, "microseconds": 0}})

    def serve(self) -> None:
        if MODE.get("silent"):
            signal.pause()
        version = {"qemu": {"micro": 0, "minor": 0, "major": 10}, "package": "fake"}
        self.send({"QMP": {"version": version, "capabilities": []}})
        if MODE.get("die") == "greeting":
            end(4, "fake: died after the greeting")
        text, decoder = "", json.JSONDecoder()
        while data := self.qmp.recv(65536):  # requests are not ended by anything
            text += data.decode()
            while text := text.lstrip():
                try:
                    request, end_at = decoder.raw_decode(text)
                except ValueError:
                    break
                text = text[end_at:]
                self.answer(request)

    def answer(self, request: dict[str, Any]) -> None:
        command = request["execute"]
        if command == MODE.get("stop_on"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if command in MODE.get("mute", []):
            return
        if command == MODE.get("panic_on"):
            self.serial.write(PANIC.encode())
            self.event("SHUTDOWN", guest=True, reason="guest-reset")
            end(0)
        if command == MODE.get("die_on"):
            end(5, "fake: died as told")
        identity = {"id": request["id"]} if "id" in request else {}
        if command == "refuse":
            self.send({"error": {"class": "GenericError", "desc": "refused as told"}, **identity})
            return
        result = {"query-status": {"status": "running", "running": True}, "qom-list": []}.get(command, {})
        self.send({"return": result, **identity})
        if command == "qmp_capabilities":
            if MODE.get("die") == "capabilities":
                end(6, "fake: died after the capabilities")
            for number in range(MODE.get("flood", 0)):
                self.event("FLOOD", number=number)
        if command == "quit":
            self.event("SHUTDOWN", guest=False, reason="host-qmp-quit")
            end(0)


def main() -> None:
    if MODE.get("die") == "start":
        end(1, "fake: -device nonsense: 'nonsense' is not a valid device model name")
    found = channels(sys.argv)
    serial = serial_port(sys.argv)
    serial.write(MODE.get("klog", "[    0.0] Booting fake\n").encode())
    if not MODE.get("no_shell"):
        port = found["cmd"]
        shell = subprocess.Popen(["/bin/sh"], stdin=port, stdout=port, stderr=port, start_new_session=True)
        MODE["shell"] = shell.pid
        port.close()
    Monitor(found["qmp"], serial).serve()


main()
