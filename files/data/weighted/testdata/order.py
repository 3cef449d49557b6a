"""Writes order.json: the order of sequences, computed by the rules of docs/data.md.

    python order.py
"""

import json
from fractions import Fraction
from hashlib import sha256
from pathlib import Path


def little(number, size):
    return number.to_bytes(size, "little")


def shuffled(seed, n, index):
    x, p = index % n, index // n
    for r in range(90):
        m = b"psyche/data/shuffle/v1" + seed + little(p, 8) + bytes([r])
        k = int.from_bytes(sha256(m).digest()[:8], "little") % n
        y = (k - x) % n
        z = max(x, y)
        if sha256(m + little(z // 256, 8)).digest()[z // 8 % 32] >> (z % 8) & 1:
            x = y
    return x


def shares(weights):
    weights = [Fraction(w) for w in weights]
    total = sum(weights)
    unit = total
    for w in weights:  # the largest number that all weights are multiples of
        a, b = unit, w
        while b:
            a, b = b, a % b
        unit = a
    if total / unit <= 65536:
        return [int(w / unit) for w in weights]
    exact = [w * 65536 / total for w in weights]
    made = [max(int(e), 1) for e in exact]
    rest = 65536 - sum(made)
    order = sorted((i for i, e in enumerate(exact) if e >= 1), key=lambda i: (-(exact[i] - int(exact[i])), i))
    for i in order[: max(rest, 0)]:
        made[i] += 1
    for _ in range(-rest):
        made[made.index(max(made))] -= 1
    return made


def order(weights, lengths, seeds, seed, first, count):
    of = shares(weights)
    length = sum(of)
    cycle, numbers = [], [0] * len(of)
    for _ in range(length):
        numbers = [n + s for n, s in zip(numbers, of)]
        i = numbers.index(max(numbers))
        numbers[i] -= length
        cycle.append((i, sum(1 for s, _ in cycle if s == i)))
    found = []
    for index in range(first, first + count):
        place = shuffled(seed, length, index) if seed else index % length
        source, r = cycle[place]
        at = index // length * of[source] + r
        n, own = lengths[source], seeds[source]
        found.append([source, shuffled(own, n, at) if own else at % n])
    return found


def seed_of(number):
    return little(number, 32) if number else b""


cases = []
for weights, lengths, seeds, seed, first, count in [
    (["1"], [1000], [0], 0, 990, 20),
    (["1"], [1000], [7], 0, 0, 40),
    (["1"], [1000], [7], 0, 990, 30),
    (["1"], [1 << 40], [2**64 - 1], 0, 3 << 40, 20),
    (["1"], [1], [5], 0, 0, 3),
    (["0.7", "0.3"], [50, 11], [3, 0], 7, 0, 60),
    (["0.7", "0.3"], [50, 11], [3, 9], 0, 100, 60),
    (["1", "2", "3"], [5, 5, 5], [1, 2, 3], 4, 0, 60),
    (["0.333", "0.667", "0.25"], [1000, 100, 10], [1, 0, 3], 4, 2000, 40),
]:
    found = order(weights, lengths, [seed_of(s) for s in seeds], seed_of(seed), first, count)
    cases.append({"weights": weights, "lengths": lengths, "seeds": [str(s) for s in seeds], "seed": str(seed), "first": first, "order": found})
Path("order.json").write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
