#!/usr/bin/env python3
"""Starts a throw-away MongoDB, runs a command with it, and removes every trace. Used by with-mongo.

    mongo_set.py mongod PATH CMD [ARG…]
    mongo_set.py docker IMAGE CMD [ARG…]

It exits with the exit code of the command. After the command, an error, Ctrl-C or TERM, no process and no
data remain. After a KILL, the kernel ends the servers (on Linux), and the next run removes the data.
Several instances may run at once.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from mongo_wire import CommandFailed, Connection

START_LIMIT = 90  # seconds until a server must accept writes; on an idle machine it takes about one
GRACE = 10  # seconds for the command to end after a signal
PARTING = 2  # seconds for its remaining processes to end after a TERM
SET = "rs0"
FOLDER = "tidings-mongo."  # prefix of the data folder in $TMPDIR
LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Unavailable(Exception):
    """No server could be started. The message gives the reason and a remedy."""


class PortTaken(Exception):
    """Another process bound a port after `free_ports` found it free."""


class Interrupted(Exception):
    """A signal arrived before the command was started."""


def say(text):
    print(f"with-mongo: {text}", file=sys.stderr, flush=True)


def main():
    kind, source, *command = sys.argv[1:]
    kinds = {"mongod": Processes, "docker": Containers}

    run = Run()
    try:
        servers = start(kinds[kind], source, Settings.from_environment(), run)
        say(f"ready at {servers.uri()}")
        environment = {"TIDINGS_TEST_MONGO": servers.uri()}
        if kind == "mongod":
            environment["TIDINGS_TEST_MONGOD"] = source
        code = run.command(command, environment)
        servers.report_deaths()
    except Unavailable as error:
        say(error)
        code = 69  # EX_UNAVAILABLE: not the command's fault
    except Interrupted:
        code = 128 + run.signal
    finally:
        run.clear_away()
    if run.signal:  # die from the same signal, so that a calling script stops too
        signal.signal(run.signal, signal.SIG_DFL)
        os.kill(os.getpid(), run.signal)
    sys.exit(code)


class Settings:
    """The settings from the environment."""

    def __init__(self, nodes, standalone, cache):
        self.nodes, self.standalone, self.cache = nodes, standalone, cache

    @classmethod
    def from_environment(cls):
        nodes = os.environ.get("TIDINGS_MONGO_NODES") or "1"
        standalone = os.environ.get("TIDINGS_MONGO_STANDALONE") or "0"
        if nodes not in tuple("1357"):
            raise Unavailable(f"TIDINGS_MONGO_NODES is {nodes!r}; it must be 1, 3, 5 or 7")
        if standalone not in ("0", "1"):
            raise Unavailable(f"TIDINGS_MONGO_STANDALONE is {standalone!r}; it must be 0 or 1")
        if standalone == "1" and nodes != "1":
            raise Unavailable("TIDINGS_MONGO_STANDALONE and TIDINGS_MONGO_NODES contradict each other")
        cache = os.environ.get("TIDINGS_MONGO_CACHE_GB") or ("1" if nodes == "1" else "0.25")
        try:
            fits = 0.25 <= float(cache) <= 10_000
        except ValueError:
            fits = False
        if not fits:
            raise Unavailable(f"TIDINGS_MONGO_CACHE_GB is {cache!r}; it must be 0.25 or more")
        return cls(int(nodes), standalone == "1", cache)

    def arguments(self, port):
        """Returns the arguments of every mongod, both local and in Docker."""
        told = [
            *("--port", str(port), "--nounixsocket", "--quiet"),
            *("--wiredTigerCacheSizeGB", self.cache),
            # By default, each node would preallocate three journal files of 100 MB.
            *("--wiredTigerEngineConfigString", "log=(file_max=16MB)"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            # The files of a dropped collection stay open while old snapshots can be read, by default for
            # five minutes. Tests drop thousands of collections and would exceed the limit of open files.
            *("--setParameter", "minSnapshotHistoryWindowInSeconds=0", "--syncdelay", "10"),
            # Enables fail points (`configureFailPoint`). With them, tests fail a write after it was applied.
            *("--setParameter", "enableTestCommands=1"),
        ]
        return told if self.standalone else [*told, "--replSet", SET, "--oplogSize", "128"]


# --- one run: the signals, the folder, the processes ----------------------------------------------------


class Run:
    """Owns the folder, the processes and the cleanup. Passes signals on while the command runs."""

    def __init__(self):
        self.signal, self._child, self._folder, self._lock, self._at_end = None, None, None, None, []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a script's background job
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, lambda *_: self._kill_command())
        if LINUX:  # orphans of the command become our children, so that `descendants` finds them
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def _on_signal(self, number, _frame):
        again, self.signal = self.signal is not None, number
        if self._child is None:
            return
        if again:
            self._kill_command()
        elif not (number == signal.SIGINT and in_foreground()):  # else the terminal has sent it already
            self._child.send_signal(number)
        signal.alarm(GRACE)

    def _kill_command(self):
        if self._child is not None:
            self._child.kill()

    def check(self):
        """Raises Interrupted if a signal has arrived. Waiting loops call it."""
        if self.signal:
            raise Interrupted

    def folder(self):
        """Returns the folder of this run, created on first use. Its lock keeps `sweep` from removing it."""
        if self._folder is None:
            sweep()
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix=FOLDER))
            self._lock = open(self._folder / "lock.new", "w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.rename(self._folder / "lock.new", self._folder / "lock")
        return self._folder

    def at_end(self, action):
        self._at_end.append(action)

    def command(self, command, environment):
        """Runs the command and returns the exit code that a shell would report."""
        self.check()
        try:
            self._child = subprocess.Popen(
                command, env={**os.environ, **environment}, preexec_fn=lambda: die_with_parent(signal.SIGTERM)
            )
        except OSError as error:
            say(f"cannot run {command[0]}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        if self.signal:  # it arrived while the command was being started
            self._child.send_signal(self.signal)
        code = self._child.wait()
        signal.alarm(0)
        self._child = None
        return code if code >= 0 else 128 - code

    def clear_away(self):
        for action in reversed(self._at_end):
            action()
        if left := descendants():
            say("ending what the command left running: " + ", ".join(f"{name} ({pid})" for pid, name in left))
            kill(left, signal.SIGTERM)  # lets them clean up, in particular nested runs of this script
            deadline = time.monotonic() + PARTING
            while descendants() and time.monotonic() < deadline:
                time.sleep(0.02)
        while left := descendants():  # repeat, because a process may fork meanwhile
            kill(left, signal.SIGKILL)
            time.sleep(0.02)
        reap()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def sweep():
    """Removes the folders of killed runs. A live run holds the lock of its folder."""
    for lock in pathlib.Path(tempfile.gettempdir()).glob(FOLDER + "*/lock"):
        try:
            with open(lock) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue


def in_foreground():
    """Returns whether this is the terminal's foreground group. Then Ctrl-C reaches the command as well."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def die_with_parent(number):
    """Asks the kernel to send signal `number` to this child when its parent dies. Linux only."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def descendants():
    """Returns (pid, name) of every live descendant of this process. Empty without /proc."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat") if LINUX else ():
        try:
            head, _, tail = entry.read_text().rpartition(")")
        except OSError:  # the process has just ended
            continue
        pid, _, name = head.partition(" (")
        state, parent = tail.split()[:2]
        if state not in "ZX":
            parents[int(pid)], names[int(pid)] = int(parent), name
    ours, found = {os.getpid()}, True
    while found:
        found = {pid for pid, parent in parents.items() if parent in ours and pid not in ours}
        ours |= found
    return [(pid, names[pid]) for pid in sorted(ours - {os.getpid()})]


def kill(processes, number):
    for pid, _ in processes:
        with contextlib.suppress(ProcessLookupError):  # the process has just ended
            os.kill(pid, number)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


# --- the servers ----------------------------------------------------------------------------------------


def start(kind, source, settings, run):
    """Starts servers and returns them as soon as they accept writes."""
    for _ in range(5):
        servers = kind(free_ports(settings.nodes), settings, run)
        try:
            servers.spawn(source)
            make_ready(servers, run)
            return servers
        except PortTaken:
            servers.stop()
    raise Unavailable("other processes took the free ports five times in a row")


def free_ports(count):
    """Returns free loopback ports, below the range from which the kernel assigns ports to clients."""
    ports = []
    for port in random.sample(range(21_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise Unavailable("there are no free ports between 21000 and 32000")


class Servers:
    """One mongod or a set of them, on loopback."""

    def __init__(self, ports, settings, run):
        self.ports, self.settings, self.children = ports, settings, {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="set.", dir=run.folder()))
        run.at_end(self.stop)

    def uri(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"mongodb://{hosts}/" + ("" if self.settings.standalone else f"?replicaSet={SET}")

    def report_deaths(self):
        for port, child in self.children.items():
            if child.poll() is not None:
                say(f"the server on port {port} ended during the run, with {child.returncode}")

    def stop(self):
        for child in self.children.values():
            child.kill()  # the data is not needed, and a primary takes 15 s to end after a TERM
            child.wait()


class Processes(Servers):
    """Servers that run as child processes."""

    def spawn(self, mongod):
        for port in self.ports:
            data = self.folder / str(port)
            data.mkdir()
            child = subprocess.Popen(
                [mongod, *self.settings.arguments(port), "--bind_ip", "127.0.0.1"]
                + ["--dbpath", str(data), "--logpath", str(self._log(port))],
                env={**os.environ, "LC_ALL": "C"},  # it would not start with a missing locale
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=open(self.folder / f"{port}.stderr", "wb"),
                start_new_session=True,  # keeps Ctrl-C from it, so that the command ends first
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),
            )
            self.children[port] = child

    def _log(self, port):
        return self.folder / f"{port}.log"

    def check(self):
        """Raises if a server has ended."""
        for port, child in self.children.items():
            if child.poll() is None:
                continue
            log = self._log(port).read_text(errors="replace") if self._log(port).exists() else ""
            if "Address already in use" in log:
                raise PortTaken
            log += (self.folder / f"{port}.stderr").read_text(errors="replace")
            last = "\n".join("    " + line[:400] for line in log.splitlines()[-12:])
            raise Unavailable(f"mongod ended with {child.returncode} at its start; end of its log:\n{last}")

    def is_ours(self, port, connection):
        """Returns whether our server answers on this port, and not one that bound the port first."""
        pid = connection.command({"serverStatus": 1, "metrics": 0, "wiredTiger": 0})["pid"]
        return pid == self.children[port].pid


class Containers(Servers):
    """Servers in one container. Inside and outside, each has the same port on loopback."""

    def spawn(self, image):
        published, script = [], ""
        for port in self.ports:
            told = " ".join(f"'{argument}'" for argument in self.settings.arguments(port))
            script += f"mkdir -p /data/db/{port}\n"
            script += f"mongod --bind_ip_all --dbpath /data/db/{port} {told} >/dev/null &\n"
            published += ["--publish", f"127.0.0.1:{port}:{port}"]
        # With `wait -n`, the container ends as soon as one server ends.
        self.children[self.ports[0]] = subprocess.Popen(
            ["docker", "run", "--rm", "--name", self._name(), *published]
            + ["--entrypoint", "bash", image, "-c", script + "wait -n\n"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(self.folder / "docker.stderr", "wb"),
            start_new_session=True,
        )

    def _name(self):
        return f"tidings-mongo-{os.getpid()}-{self.ports[0]}"

    def check(self):
        """Raises if the container has ended."""
        code = self.children[self.ports[0]].poll()
        if code is None:
            return
        words = (self.folder / "docker.stderr").read_text(errors="replace")
        if "address already in use" in words or "port is already allocated" in words:
            raise PortTaken
        raise Unavailable(f"docker run ended with {code}:\n{words}")

    def is_ours(self, _port, _connection):
        return True  # Docker fails if it cannot publish the port

    def stop(self):
        subprocess.run(
            ["docker", "rm", "--force", "--volumes", self._name()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        super().stop()


def make_ready(servers, run):
    """Waits until every server answers, initiates the replica set, and waits until it accepts writes."""
    deadline = time.monotonic() + START_LIMIT

    def until(what, done):
        while True:
            run.check()
            servers.check()
            try:
                if done():
                    return
            except (OSError, CommandFailed) as error:
                what = f"{what.split(': ')[0]}: {error}"
            if time.monotonic() > deadline:
                raise Unavailable(f"gave up after {START_LIMIT} s waiting until {what}")
            time.sleep(0.05)

    def ask(port, command, database="admin"):
        with Connection("127.0.0.1", port) as connection:
            return connection.command(command, database)

    def answers(port):
        with Connection("127.0.0.1", port) as connection:
            if not servers.is_ours(port, connection):
                raise PortTaken
            return True

    for port in servers.ports:
        until("mongod answers", lambda port=port: answers(port))
    primary, concern = servers.ports[0], {}
    if not servers.settings.standalone:
        ask(primary, {"replSetInitiate": configuration(servers.ports)})
        until("the set has a primary", lambda: ask(primary, {"hello": 1}).get("primary"))
        primary = int(ask(primary, {"hello": 1})["primary"].rpartition(":")[2])
        concern = {"writeConcern": {"w": len(servers.ports), "wtimeout": 5000}}

    def takes_writes():
        write = {"update": "probe", "updates": [{"q": {"_id": 1}, "u": {"_id": 1}, "upsert": True}]}
        reply = ask(primary, {**write, **concern}, "tidings_probe")
        if "writeConcernError" in reply:
            raise ConnectionError(reply["writeConcernError"]["errmsg"])
        ask(primary, {"dropDatabase": 1, **concern}, "tidings_probe")
        return True

    until("every node accepts writes", takes_writes)


def configuration(ports):
    members = [{"_id": i, "host": f"127.0.0.1:{port}"} for i, port in enumerate(ports)]
    # Elections start after 2 s instead of 10, which makes failover tests faster. With less, a busy machine
    # would hold needless elections.
    return {"_id": SET, "members": members, "settings": {"electionTimeoutMillis": 2000}}


if __name__ == "__main__":
    main()
