#!/usr/bin/env python3
"""Runs a command on a MongoDB server, with OP_MSG, a subset of BSON, and the standard library only.

The scripts use it to start a replica set on machines that have neither mongosh nor a driver. It has no TLS
and no authentication, because the scripts start the servers themselves. By hand:

    scripts/lib/mongo_wire.py 127.0.0.1:27017 '{"hello": 1}'
    scripts/lib/mongo_wire.py 127.0.0.1:27017/tidings '{"count": "users"}'
"""

import datetime
import itertools
import json
import os
import socket
import struct
import sys

OP_MSG = 2013
MAX_MESSAGE = 48_000_000


class CommandFailed(Exception):
    """The server answered `ok: 0`. `code` is its error code."""

    def __init__(self, reply):
        super().__init__(f"{reply.get('errmsg')} ({reply.get('codeName') or reply.get('code')})")
        self.code = reply.get("code")


class ObjectId(bytes):
    """An ObjectId: twelve bytes, printed as hex."""

    def __str__(self):
        return self.hex()


# --- BSON ---------------------------------------------------------------------------------------------


def encode(document):
    """Encodes a dict as BSON. Integers are int32 if they fit, as mongosh sends them."""
    body = b"".join(_element(str(key), value) for key, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _element(key, value):
    kind, payload = _value(value)
    return bytes([kind]) + key.encode() + b"\0" + payload


def _value(value):
    if value is None:
        return 0x0A, b""
    if isinstance(value, bool):  # before int, because bool is a subclass
        return 0x08, bytes([value])
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return 0x10, struct.pack("<i", value)
        return 0x12, struct.pack("<q", value)
    if isinstance(value, float):
        return 0x01, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode() + b"\0"
        return 0x02, struct.pack("<i", len(data)) + data
    if isinstance(value, ObjectId):  # before bytes, because ObjectId is a subclass
        return 0x07, bytes(value)
    if isinstance(value, bytes):
        return 0x05, struct.pack("<iB", len(value), 0) + value
    if isinstance(value, datetime.datetime):
        return 0x09, struct.pack("<q", round(value.timestamp() * 1000))
    if isinstance(value, dict):
        return 0x03, encode(value)
    if isinstance(value, (list, tuple)):
        return 0x04, encode({str(i): item for i, item in enumerate(value)})
    raise TypeError(f"cannot write a {type(value).__name__} as BSON")


def decode(data):
    """Decodes `data`, which must be exactly one BSON document."""
    document, end = _document(data, 0)
    if end != len(data):
        raise ValueError("bytes left over after a BSON document")
    return document


def _document(data, at):
    (size,) = struct.unpack_from("<i", data, at)
    end, at, document = at + size, at + 4, {}
    while data[at] != 0:
        kind, (key, at) = data[at], _cstring(data, at + 1)
        document[key], at = _read(kind, data, at)
    return document, end


def _cstring(data, at):
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _read(kind, data, at):
    if kind == 0x01:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind in (0x02, 0x0D, 0x0E):  # string, code, symbol
        (size,) = struct.unpack_from("<i", data, at)
        return data[at + 4 : at + 3 + size].decode(), at + 4 + size
    if kind == 0x03:
        return _document(data, at)
    if kind == 0x04:
        items, at = _document(data, at)
        return list(items.values()), at
    if kind == 0x05:
        (size,) = struct.unpack_from("<i", data, at)
        return bytes(data[at + 5 : at + 5 + size]), at + 5 + size
    if kind == 0x07:
        return ObjectId(data[at : at + 12]), at + 12
    if kind == 0x08:
        return data[at] == 1, at + 1
    if kind == 0x09:
        (millis,) = struct.unpack_from("<q", data, at)
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return epoch + datetime.timedelta(milliseconds=millis), at + 8
    if kind in (0x06, 0x0A):  # undefined, null
        return None, at
    if kind == 0x0B:
        pattern, at = _cstring(data, at)
        options, at = _cstring(data, at)
        return f"/{pattern}/{options}", at
    if kind == 0x10:
        return struct.unpack_from("<i", data, at)[0], at + 4
    if kind == 0x11:
        increment, seconds = struct.unpack_from("<II", data, at)
        return {"t": seconds, "i": increment}, at + 8
    if kind == 0x12:
        return struct.unpack_from("<q", data, at)[0], at + 8
    if kind == 0x13:
        return bytes(data[at : at + 16]), at + 16
    if kind in (0x7F, 0xFF):
        return "MaxKey" if kind == 0x7F else "MinKey", at
    raise ValueError(f"unsupported BSON type 0x{kind:02x}")


# --- the wire -----------------------------------------------------------------------------------------


class Connection:
    """A connection to one server. Raises OSError if the server is unreachable or stops answering."""

    def __init__(self, host, port, timeout=5.0):
        self._socket = socket.create_connection((host, port), timeout)
        self._ids = itertools.count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def command(self, command, database="admin"):
        """Runs `command`, whose first key is its name. Returns the reply or raises CommandFailed."""
        request = next(self._ids)
        body = struct.pack("<IB", 0, 0) + encode({**command, "$db": database})
        self._socket.sendall(struct.pack("<iiii", 16 + len(body), request, 0, OP_MSG) + body)

        size, _, answers, opcode = struct.unpack("<iiii", self._receive(16))
        if opcode != OP_MSG or answers != request or not 21 <= size <= MAX_MESSAGE:
            raise ConnectionError("the server does not speak MongoDB's OP_MSG")
        flags, section = struct.unpack_from("<IB", body := self._receive(size - 16))
        if section != 0 or flags & 1:  # servers send a checksum only if the request has one
            raise ConnectionError("unexpected kind of OP_MSG")
        reply = decode(body[5:])
        if reply.get("ok") != 1:
            raise CommandFailed(reply)
        return reply

    def _receive(self, size):
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError("the server closed the connection")
            data += chunk
        return bytes(data)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    where, command = sys.argv[1], json.loads(sys.argv[2])
    address, _, database = where.partition("/")
    host, _, port = address.rpartition(":")
    with Connection(host, int(port)) as connection:
        reply = connection.command(command, database or "admin")
    print(json.dumps(reply, indent=2, default=str))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CommandFailed, OSError, ValueError) as error:
        sys.exit(f"mongo_wire: {error}")
