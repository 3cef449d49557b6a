"""One member of a run of Hivemind that proof/bench/peers compares with: see README.md beside it.

Model, text, learning rates and the lines that are printed are those of peers.py. hivemind.Optimizer is set up as the
guide of its class says, but for two things: groups for averaging are complete with all members, and do not wait for
more, and a leader that does not answer is given up after a second. It counts sequences, and ends an exchange when it
believes that all members have trained as many as an exchange has: a member trains on until then, so an exchange may
have more of them, and a member may read on in its share of the text while another is behind.
"""

import functools
import glob
import os
import time

import hivemind
import torch
from hivemind.compression import Float16Compression
from hivemind.optim.grad_averager import GradientAverager
from hivemind.utils import get_dht_time
from torch import nn

import peers

PATIENCE = 300  # seconds, for another member to come: one that is left behind gives averaging up slowly


class ClippedAdamW(torch.optim.AdamW):
    """AdamW that clips the gradients: their mean over all members is not seen outside of it."""

    steps = 0

    def step(self, closure=None):
        nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
        self.steps += 1
        return super().step(closure)


class Member:
    def __init__(self, o):
        self.o = o
        self.model = peers.load(o.model)
        self.tokens, self.held_out = peers.sequences(o.tokens, o.length), peers.sequences(o.held_out, o.length)
        self.share = o.batch // o.world
        self.at_once = self.share // o.inner
        self.taken = 0  # sequences, of its shares
        self.dht = self.join()
        groups = {"target_group_size": o.world, "request_timeout": 1.0}
        self.optimizer = hivemind.Optimizer(
            dht=self.dht, run_id="peers", target_batch_size=o.batch, batch_size_per_step=self.at_once,
            params=list(self.model.parameters()),
            optimizer=lambda params: ClippedAdamW(params, lr=o.lr, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay),
            scheduler=lambda adam: torch.optim.lr_scheduler.LambdaLR(adam, lambda epoch: peers.rate(o, epoch + 1) / o.lr),
            matchmaking_time=o.matchmaking, averaging_timeout=o.averaging_timeout,
            grad_compression=Float16Compression(), state_averaging_compression=Float16Compression(),
            grad_averager_factory=functools.partial(GradientAverager, **groups), averager_opts=groups, verbose=True,
        )

    def join(self):
        """Starts the table that members find each other by, or joins it: the first member leaves its address in a file."""
        o, path = self.o, os.path.join(self.o.folder, "first-address")
        if o.rank == 0:
            host, port = o.first.rsplit(":", 1)
            dht = hivemind.DHT(host_maddrs=[f"/ip4/{host}/tcp/{port}"], start=True)
            with open(path + ".part", "w") as file:
                file.write(str(dht.get_visible_maddrs()[0]))
            os.replace(path + ".part", path)
            return dht
        until(lambda: os.path.exists(path), "the first member's address")
        with open(path) as file:
            return hivemind.DHT(initial_peers=[file.read()], host_maddrs=[f"/ip4/{o.address}/tcp/0"], start=True)

    def meet(self, place):
        """Waits until all members have come to a place of the program."""
        def all_there():
            found = self.dht.get(place, latest=True)
            return found is not None and len(found.value) == self.o.world

        self.dht.store(place, subkey=str(self.o.rank), value=True, expiration_time=get_dht_time() + 3600)
        until(all_there, f"all members at the {place}")

    def batch(self):
        """The next sequences of this member's shares, from the beginning again after the last."""
        exchange, place = divmod(self.taken, self.share)
        first = exchange * self.o.batch % (len(self.tokens) // self.o.batch * self.o.batch)
        first += self.o.rank * self.share + place
        self.taken += self.at_once
        return self.tokens[first : first + self.at_once]

    def exchange(self):
        """Trains until the next exchange is over. Returns what there is to say about it."""
        before, losses = self.optimizer.local_epoch, []
        while self.optimizer.local_epoch == before:
            steps = self.optimizer.opt.steps
            loss = peers.loss_of(self.model, self.batch())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            if self.optimizer.local_epoch != before and self.optimizer.opt.steps == steps:
                before, losses = self.optimizer.local_epoch, []  # it was behind, and has the others' weights now
        return {"Step": self.optimizer.local_epoch, "Rank": self.o.rank, "Loss": sum(losses) / len(losses),
                "Sequences": len(losses) * self.at_once}

    @torch.no_grad()
    def measure(self, weights):
        """The loss of the held-out text with some weights."""
        for p, w in zip(self.model.parameters(), weights):
            p.copy_(w)
        losses = [peers.loss_of(self.model, part).item() * len(part) for part in self.held_out.split(8)]
        return sum(losses) / len(self.held_out)

    def weights(self):
        return [p.detach().clone() for p in self.model.parameters()]


def until(so, what):
    """Waits until something is so, for a while."""
    deadline = time.monotonic() + PATIENCE
    while not so():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not there after {PATIENCE} s")
        time.sleep(0.1)


def processor(process):
    """Seconds of processor that a process and all below it have used: Hivemind does its networking in processes."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        below = []
        for path in glob.glob(f"/proc/{process}/task/*/children"):
            with open(path) as file:
                below += file.read().split()
    except FileNotFoundError:
        return 0.0
    own = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor(one) for one in below)


def main():
    os.setpgrp()  # so that all of its processes can be killed at once
    flags = peers.flags(("hivemind",))
    flags.add_argument("--folder", required=True, help="where members leave an address and their last weights")
    flags.add_argument("--matchmaking", type=float, default=5.0, help="seconds")
    flags.add_argument("--averaging-timeout", type=float, default=30.0, help="seconds")
    o = flags.parse_args()
    torch.set_num_threads(1)
    member = Member(o)
    said, kept = [], {0: member.weights()}
    member.meet("begin")
    peers.say(Step=0, CPU=processor(os.getpid()))
    while member.optimizer.local_epoch < o.steps:
        line = member.exchange()
        line["Time"], line["CPU"] = time.time(), processor(os.getpid())
        step = line["Step"]
        if o.measure_every and o.rank == 0 and (step % o.measure_every == 0 or step >= o.steps):
            kept[step] = member.weights()
        peers.say(**line)
    ended = {"Time": time.time(), "CPU": processor(os.getpid())}
    member.optimizer.state_averager.step(wait_for_delayed_updates=True)
    last = member.weights()
    with open(os.path.join(o.folder, f"rank-{o.rank}.f32"), "wb") as file:
        for p in last:
            file.write(p.numpy().tobytes())
    member.meet("end")
    member.optimizer.shutdown()
    if o.measure_every and o.rank == 0:  # measuring earlier would hold the others up, and change what they train
        for step, weights in kept.items():
            peers.say(Step=step, HeldOut=member.measure(weights))
    peers.say(Step=member.optimizer.local_epoch, Digest=peers.digest(last), **ended)
    member.dht.shutdown()


main()
