"""Run by an agent in its sandbox as an MCP server: passes lines between it and the socket that alipes listens on."""

import os
import select
import socket
import sys

SIZE = 65536


def main(path: str) -> None:
    link = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(path))  # a path in the address of a socket may not be long
    link.connect(os.path.basename(path))
    sources: list[int | socket.socket] = [0, link]
    while True:
        for ready in select.select(sources, (), ())[0]:
            if ready == 0:
                if piece := os.read(0, SIZE):
                    link.sendall(piece)
                else:
                    sources.remove(0)
                    link.shutdown(socket.SHUT_WR)
            elif piece := link.recv(SIZE):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            else:
                return


if __name__ == "__main__":
    main(sys.argv[1])
