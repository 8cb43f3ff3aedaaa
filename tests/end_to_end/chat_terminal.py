#!/usr/bin/env python3
"""`tessera chat` at a terminal: editing and history, text in every script, Ctrl-C that stops an answer or drops a line but never the
program, however often it is pressed, and SIGTERM that ends it."""

import contextlib
import os
import pty
import select
import signal
import sys
import time

BINARY = sys.argv[1]
LIMIT_S = 60
failures = []


def expect(condition, *what):
    if not condition:
        failures.append(" ".join(map(str, what)))


class Terminal:
    def __init__(self, *arguments, locale="C"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", LC_ALL=locale)
            os.execv(BINARY, [BINARY, "chat", "--temperature", "0", *arguments])
        self.shown = b""
        self.wait_for("leave")
        self.wait_for("> ")

    def type(self, text):
        self.shown = b""
        os.write(self.fd, text.encode())

    def wait_for(self, text):
        """Reads until `text` is shown or the program is gone."""
        end = time.monotonic() + LIMIT_S
        while text.encode() not in self.shown and time.monotonic() < end:
            if not select.select([self.fd], [], [], 1)[0]:
                continue
            try:
                more = os.read(self.fd, 4096)
            except OSError:
                break
            if not more:
                break
            self.shown += more
        found = text.encode() in self.shown
        expect(found, repr(text), "was not shown but", self.shown[-300:])
        self.shown = self.shown.partition(text.encode())[2]
        return found

    def exit_code(self, key=None):
        """Presses a key until the program is gone: in the instant before it reads, the terminal takes keys in its own way."""
        gone = os.pidfd_open(self.pid)
        end = time.monotonic() + LIMIT_S
        ended = False
        while not ended and time.monotonic() < end:
            with contextlib.suppress(OSError):
                os.write(self.fd, key or b"")
            ended = bool(select.select([gone], [], [], 0.1)[0])
        os.close(gone)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status) if ended else "none, it had to be killed"


def check_editing():
    terminal = Terminal()
    terminal.type("What does rivxr\x7f\x7fer mean?\n")
    terminal.wait_for('The word "river"')
    terminal.wait_for("> ")
    terminal.type("\x1b[A")  # the line before
    terminal.wait_for("What does river mean?")
    terminal.type("\x15\n/quit\n")
    expect(terminal.exit_code() == 0, "/quit")


def check_scripts():
    text = "Où « café » 你好 😀"
    for locale in ("C", "C.UTF-8"):
        terminal = Terminal("-n", "2", locale=locale)
        terminal.type(text + "\n")
        terminal.wait_for(text)
        terminal.wait_for("> ")
        expect(terminal.exit_code(key=b"\x04") == 0, "Ctrl-D", locale)


def check_interrupts():
    terminal = Terminal("--ignore-eos", "-n", "3000")
    terminal.type("half a line")
    terminal.wait_for("half a line")
    terminal.type("\x03")
    terminal.wait_for("> ")
    terminal.type("Tell me a story\n")
    terminal.wait_for("Once upon")
    for _ in range(5):
        os.write(terminal.fd, b"\x03")
    terminal.wait_for("\n> ")
    terminal.type("/help\n")
    terminal.wait_for("this list")
    terminal.wait_for("> ")
    terminal.type("Tell me a story\n")
    terminal.wait_for("Once upon")
    os.kill(terminal.pid, signal.SIGTERM)
    expect(terminal.exit_code() == 128 + signal.SIGTERM, "SIGTERM in an answer")
    terminal = Terminal()
    os.kill(terminal.pid, signal.SIGTERM)
    expect(terminal.exit_code() == 128 + signal.SIGTERM, "SIGTERM at the prompt")


check_editing()
check_scripts()
check_interrupts()
print("\n".join(failures) if failures else "ok")
sys.exit(1 if failures else 0)
