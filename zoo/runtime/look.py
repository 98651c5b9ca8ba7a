"""Prints the devices that JAX finds here, as a line of JSON; a process of its own that `devices.look` runs."""

from __future__ import annotations

import json

import jax


def main() -> None:
    devices = jax.local_devices()
    stats = devices[0].memory_stats() or {}
    found = {
        "platform": devices[0].platform,
        "kind": devices[0].device_kind,
        "count": len(devices),
        "memory_bytes": stats.get("bytes_reservable_limit") or stats.get("bytes_limit", 0),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
