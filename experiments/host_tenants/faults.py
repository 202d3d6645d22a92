# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What becomes of connections when the daemon or the loader is killed, and of cgroups that come and go."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from subprocess import PIPE, CalledProcessError, Popen
from subprocess import run as run_command

from ccc_experiments.scores import Score, print_scores, write_result

from . import cgroups, demo, quiet, relayed, upgraded, watched
from .btf import Types
from .dumbbell import DEAF_PORT, Dumbbell
from .one_tenant import one_tenant
from .service import TARGET, Service, bpf, until

QUICK = bool(os.environ.get("QUICK"))
KILLS = int(os.environ.get("KILLS") or (10 if QUICK else 100))
CGROUPS = int(os.environ.get("CGROUPS") or (100 if QUICK else 1000))
AT_A_TIME = 100
# How often a namespace is made again, and so its inode is given to another one.
AGAIN = 6 if QUICK else 20
# Whatever else a machine does that runs the quick form.
BACK_WITHIN_S = 5.0 if QUICK else 1.0
# So much of the time the receiver may be held up itself: a part.
BLIND_MOST = 0.25
# More connections than a tenant has slots, but for those that send.
SLOTS = 1024
IDLE = 1100
# Of what the daemon is told at once it knows so soon; it is asked a hundred times a second.
AT_ONCE_S = 0.2
CHANGES = 5
# How long nobody is there: longer than a lease, so that all flows go on alone.
AWAY_S = 1.5
FLOWS = (1, 4)
# A service that starts anew, and how soon its first connection begins.
RESTARTS = 50
CONNECTS_AFTER_S = 0.01
# A machine that does something else wakes the loader later than that now and then; one that looks
# twice a second has one or two of them.
AT_ONCE = 40 if QUICK else RESTARTS


def run(out: Path) -> bool:
    before = ours()
    of_relay = [*relayed.run(out, KILLS, BACK_WITHIN_S), *relayed.short_at_first(out)]
    scores = [verified(out), *watched.run(out), *quiet.noticed(out), *demo.shortest(out), *kills(out), *of_relay]
    scores += [*one_place(out), *restarts(out), *made_again(out), *full(out), *stuck(out), *vanished(out)]
    scores += [*removed(out), *unpinned(out), *upgraded.run(out)]
    scores += [*changes(out), *come_and_go(out)]
    with suppress(TimeoutError):
        until("nothing left", lambda: ours() <= before, 30)
    left = sorted(map(str, ours() - before))
    scores.append(at_most("programs, maps, links and pins left behind", len(left), "1", 0))
    write_result(out / "result.json", [{"kills": KILLS, "cgroups": CGROUPS, "left": left}], scores, {})
    return print_scores(scores)


def verified(out: Path) -> Score:
    """The verifier's log, in verifier.log: how near a program is to the most that it looks at."""
    log = out / "verifier.log"
    log.unlink(missing_ok=True)
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start_daemon()
        service.start_loader("verifier", "debug")
        until("the program is loaded", lambda: any(service.pins.glob("*/complete")))
    looked_at = [int(number) for number in re.findall(r"^\s*processed (\d+) insns", log.read_text(), re.M)]
    return at_most("instructions that the verifier looks at in one program, of a million", max(looked_at), "1", 250_000)


def at_most(name: str, value: float, unit: str, limit: float) -> Score:
    return Score(name, value, unit, "<=", limit)


def kills(out: Path) -> list[Score]:
    """Each program killed in turn while flows run: how long until all are coupled again."""
    service = Service(out, {"g": {}})
    back: dict[str, list[float]] = {"daemon": [], "loader": []}
    following: list[int] = []
    again: list[int] = []
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-kills")
        stack.callback(bed.end)
        bed.make()
        for number, name in enumerate("ab"):
            service.add(name, "netns", bed.sender(number), "g")
        service.await_connected("a", "b")
        enough = 60 + 60 * KILLS
        receiver = bed.receive(enough)
        for number, flows in enumerate(FLOWS):
            bed.send(number, flows, enough, "reno")
        until("flows coupled", lambda: coupled(service) == sum(FLOWS))
        before = all_follow_grants()
        for _ in range(KILLS // 2):
            for what, kill, start in (
                ("daemon", service.kill_daemon, service.start_daemon),
                ("loader", service.kill_loader, service.start_loader),
            ):
                kill()
                time.sleep(AWAY_S)
                following.append(follow_grants())
                back[what].append(time_until_back(service, start))
                again.append(all_follow_grants())
        replaced(service)
        time.sleep(AWAY_S)
        back["loader before an upgrade"] = [time_until_back(service, service.start_loader)]
        receiver.terminate()
        received = json.loads(receiver.communicate()[0])
    found = {"back_s": back, "following_grants": following, "following_again": again, "received": received}
    (out / "kills.json").write_text(json.dumps(found, indent=1) + "\n")
    silent, blind = (
        max(of(each, received["stood_still"]) for each in received["bytes_by_second"].values())
        for of in (silent_seconds, blind_part)
    )
    return [
        *(
            Score.worst(f"{what} killed: until all flows are coupled again", times, "s", "<=", BACK_WITHIN_S)
            for what, times in back.items()
        ),
        at_most(f"{KILLS} kills: connections ended", len(received["ended"]), "1", 0),
        # Or there could be none for want of a look.
        at_least("flows that follow grants before these", before, sum(FLOWS)),
        at_most(f"{KILLS} kills: flows that follow grants once the lease is over", max(following), "1", 0),
        # What the daemon counts as coupled is its own word.
        at_least(f"{KILLS} kills: flows that follow grants once all are coupled again", min(again), sum(FLOWS)),
        at_most(f"{KILLS} kills: seconds in which nothing arrived from a tenant", silent, "1", 0),
        at_most("part of the seconds that tells nothing, as the receiver stood still", blind, "1", BLIND_MOST),
    ]


def silent_seconds(received: list[int], stood_still: list[int]) -> int:
    """Those in which the receiver stood still itself tell nothing."""
    return sum(not received[second] for second in judged_seconds(received) if second not in stood_still)


def blind_part(received: list[int], stood_still: list[int]) -> float:
    judged = judged_seconds(received)
    return sum(second in stood_still for second in judged) / max(len(judged), 1)


def judged_seconds(received: list[int]) -> range:
    """The first seconds are those before the flows began, the last one is cut short."""
    return range(5, max((second for second, got in enumerate(received) if got), default=0))


def follow_grants() -> int:
    """Flows whose windows are what the host grants, by what the program keeps of them."""
    types = of_program()
    first, size = types.offset("ccc_table", "flow")[0] // 8, types.size("ccc_flow")
    bit, width = types.offset("ccc_flow", "grant.coupled")
    mask = ((1 << width) - 1) << bit % 8
    found = 0
    for value in contents():
        flows = value[first + bit // 8 :: size]
        found += sum(bool(int(byte, 16) & mask) for byte in flows)
    return found


def all_follow_grants() -> int:
    """Flows that do, as soon as all do."""
    with suppress(TimeoutError):
        until("they follow grants", lambda: follow_grants() == sum(FLOWS))
    return follow_grants()


def of_program() -> Types:
    """The types of the newest one: one of before goes when its last connection does."""
    programs = (one["id"] for one in bpf("prog") if one.get("name") == "ccc_cong_avoid")
    return Types("prog", "id", str(max(programs)))


def of_tables(field: str, size: int) -> list[str]:
    begin = of_program().offset("ccc_table", field)[0] // 8
    return [byte for value in contents() for byte in value[begin : begin + size]]


def contents() -> Iterator[list[str]]:
    """Of each table; one of a tenant before may go meanwhile."""
    for table in tables():
        with suppress(CalledProcessError):
            yield bpf("map", "dump", table)[0]["value"]


def time_until_back(service: Service, start: Callable[[], None]) -> float:
    """Seconds from a program's start until all flows are coupled."""
    began = time.monotonic()
    start()
    until("flows coupled again", lambda: coupled(service) == sum(FLOWS))
    back = time.monotonic() - began
    time.sleep(0.5)
    return back


def replaced(service: Service) -> None:
    """The loader is killed, and the one that is started is another: the pins are of a program that it is not."""
    service.kill_loader()
    [pinned] = service.pins.iterdir()
    pinned.rename(service.pins / "0123456789abcdef")


def coupled(service: Service) -> int:
    return sum(tenant["coupled_flows"] for tenant in service.tenants().values())


def flows(service: Service) -> int:
    """Coupled or not, as those of a tenant that has fallen silent."""
    return sum(tenant["flows"] for tenant in service.tenants().values())


def one_place(out: Path) -> list[Score]:
    """Two tenants of one namespace, by two names of it: the second has it when the first is removed.
    By one name the daemon refuses the second."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-place", delay_ms=10)
        stack.callback(bed.end)
        bed.make()
        other = bed.another_name(0)
        for name, netns in (("a", bed.sender(0)), ("b", other)):
            service.add(name, "netns", netns, "g")
            # The second one is not: it waits.
            service.await_connected("a")
        bed.receive(60)
        for owner in ("a", "b"):
            bed.send(0, 2, 30, "reno")
            until(f"flows are of {owner}", lambda: service.tenants()[owner]["coupled_flows"] >= 2)
            if owner == "a":
                service.remove("b")
                service.add("b", "netns", other, "g")
                # The loader asks twice a second.
                time.sleep(2)
                still = service.tenants()["a"]["coupled_flows"]
                service.remove("a")
                service.await_connected("b")
    return [Score("flows still coupled when another tenant of their place is removed", still, "1", ">=", 2)]


def restarts(out: Path) -> list[Score]:
    """A tenant whose cgroup is made anew and connects at once, and one whose loader comes back without the daemon."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-anew", rate="1gbit", packets=1000, delay_ms=1)
        stack.callback(bed.end)
        bed.make()
        bed.receive(300)
        service.add("anew", "cgroup", cgroups.make("anew"), "g")
        service.await_connected("anew")
        cgroups.make("home")
        place, home = cgroups.path("anew"), cgroups.path("home")
        place.rmdir()
        anew = bed.begin(0, place, home, RESTARTS, CONNECTS_AFTER_S)
        place.mkdir()
        # Twice as long as until it is looked for in any case.
        time.sleep(1)
        service.kill_loader()
        service.kill_daemon()
        log = out / "loader.log"
        before = log.read_text().count("] serving")
        service.start_loader()
        until("the loader serves", lambda: log.read_text().count("] serving") > before)
        alone = bed.begin(0, place, home, RESTARTS, 0)
    (out / "restarts.json").write_text(json.dumps({"anew": anew, "alone": alone}) + "\n")
    return [
        at_least(f"{RESTARTS} restarts: first connections with the coupled algorithm", ours_of(anew), AT_ONCE),
        at_least(f"{RESTARTS} connections that begin without a daemon and have it", ours_of(alone), RESTARTS),
    ]


def at_least(name: str, value: float, limit: float) -> Score:
    return Score(name, value, "1", ">=", limit)


def ours_of(names: list[str]) -> int:
    return sum(name.startswith("ccc_") for name in names)


def made_again(out: Path) -> list[Score]:
    """A namespace that is deleted and made again before the loader looks: flows of the new one are coupled."""
    found = same = 0
    log = out / "loader.log"
    with one_tenant(out, "ccc-again", 60 + 60 * AGAIN) as (service, bed):
        for _ in range(AGAIN):
            before = times_placed(log)
            with service.loader_paused():
                same += bed.make_again(0)
            with suppress(TimeoutError):
                until("the loader has looked", lambda: times_placed(log) > before)
            sender = bed.send(0, 1, 60, "reno")
            with suppress(TimeoutError):
                until("its flow is coupled", lambda: coupled(service) == 1)
                found += 1
            end(sender)
            until("its flow has left", lambda: coupled(service) == 0)
    return [
        Score(f"{AGAIN} namespaces made again: flows coupled", found, "1", ">=", AGAIN),
        Score("of these with the inode of the one before", same, "1", ">=", 1),
    ]


def times_placed(log: Path) -> int:
    """How often the loader has found another place of the tenant."""
    return log.read_text().count("tenant a: is Netns(")


def end(sender: Popen) -> None:
    sender.kill()
    sender.wait()


def beside_all_slots(service: Service, bed: Dumbbell, whose: str, parked_least: int) -> tuple[list[Score], Popen]:
    """Four flows begin while others have held all slots for long; they go on."""
    all_held(service)
    time.sleep(2)
    slots = coupled(service)
    scores, bulk = beside_parked(service, bed, whose, parked_least)
    return [at_least(f"flows coupled of {IDLE} {whose}", slots, SLOTS), *scores], bulk


def all_held(service: Service) -> None:
    with suppress(TimeoutError):
        until("all slots are held", lambda: coupled(service) >= SLOTS)


def beside_parked(service: Service, bed: Dumbbell, whose: str, parked_least: int) -> tuple[list[Score], Popen]:
    # Once each has waited for its peer as often as it takes, which is long on a busy machine.
    with suppress(TimeoutError):
        until("they have parked", lambda: slots_parked() >= parked_least, 60)
    parked, before = slots_parked(), counters(service, "a")

    def since(key: str) -> int:
        return counters(service, "a")[key] - before[key]

    bulk = bed.send(0, 4, 60, "reno")
    with suppress(TimeoutError):
        until("they have begun", lambda: since("registered") >= 4)
    time.sleep(4)
    begun, departed = since("registered"), since("left")
    alone = flows(service) - coupled(service)
    scores = [
        at_least(f"slots parked of {IDLE} {whose}", parked, parked_least),
        at_least("flows coupled of 4 that find all slots held by these", begun, 4),
        at_most("flows of theirs then that are not coupled", alone, "1", 0),
        at_least("departures of parked flows in favour of these 4", departed, 4),
    ]
    return scores, bulk


def full(out: Path) -> list[Score]:
    """Connections that have nothing to send hold all slots: those that send are coupled nevertheless."""
    with one_tenant(out, "ccc-full", 240) as (service, bed):
        idle = bed.idle(0, IDLE, 60, "reno")
        scores, bulk = beside_all_slots(service, bed, "that then are idle", SLOTS)
        # All come back at once, while others send.
        idle.communicate(b"\n\n", timeout=60)
        end(bulk)
        with suppress(TimeoutError):
            until("all have left", lambda: flows(service) == 0)
        left, held = flows(service), slots_in_use()
    return [
        *scores,
        at_most("flows that the daemon has of connections that have ended", left, "1", 0),
        at_most("slots that they hold", held, "1", 0),
    ]


def stuck(out: Path) -> list[Score]:
    """Connections to a peer that takes nothing hold all slots, and have data to send."""
    with one_tenant(out, "ccc-stuck", 240) as (service, bed):
        deaf = bed.be_deaf(240)
        bed.send(0, IDLE, 240, "reno", port=DEAF_PORT)
        # Each parks once it has waited three times for its peer.
        scores, bulk = beside_all_slots(service, bed, "whose peer then takes nothing", 4)
        end(bulk)
        # It resets its connections.
        deaf.kill()
        # Where a reset was lost on a busy machine, the next probe of the peer's window brings another.
        with suppress(TimeoutError):
            until("all have left", lambda: flows(service) == 0, 40)
        held = slots_in_use()
    return [*scores, at_most("slots held once they have been reset", held, "1", 0)]


def vanished(out: Path) -> list[Score]:
    """Connections that have data on its way hold all slots, and their peer has vanished."""
    with one_tenant(out, "ccc-vanished", 240) as (service, bed):
        bed.be_deaf(240)
        idle = bed.idle(0, IDLE, 60, "reno", DEAF_PORT)
        all_held(service)
        bed.be_reached(DEAF_PORT, False)
        tell(idle, "")
        # Each parks once it has waited four times for its peer.
        scores, bulk = beside_parked(service, bed, "whose peer has vanished", SLOTS - 4)
        end(bulk)
        bed.be_reached(DEAF_PORT, True)
        idle.communicate(timeout=60)
    return scores


def removed(out: Path) -> list[Score]:
    """The package is removed: what is pinned elsewhere than at the usual place goes, unless it is in use."""
    service = Service(out, {"g": {}})
    service.pins = Path("/sys/fs/bpf/else/where")
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        until("the program is loaded", lambda: any(service.pins.glob("*/complete")))
        said = remove_package()
        service.kill_loader()
        remove_package()
        left = len(list(service.pins.rglob("*")))
    return [
        at_least("a package that is removed tells of a program that stays", said.count("until the next boot"), 1),
        at_most("pins that it leaves of one that nobody runs", left, "1", 0),
    ]


def unpinned(out: Path) -> list[Score]:
    """Somebody removes pins, all while the loader runs and one while it does not, as who cleans up after another
    program of BPF might."""
    with one_tenant(out, "ccc-unpinned", 240) as (service, bed):
        remove_pins(service, "*/*")
        with suppress(TimeoutError):
            until("the loader ends", service.loader_has_ended)
        said = (out / "loader.log").read_text().count("somebody has removed the pin")
        first = coupled_anew(service, bed, 2)
        service.kill_loader()
        remove_pins(service, "*/choose")
        second = coupled_anew(service, bed, 4)
    return [
        at_least("pins removed: the loader ends and says so", said, 1),
        at_least("  and started anew couples new flows, of 2", first, 2),
        at_least("a pin removed while no loader runs: flows that the next one couples, of 2 and 2 new ones", second, 4),
    ]


def remove_pins(service: Service, which: str) -> None:
    for pin in service.pins.glob(which):
        pin.rmdir() if pin.is_dir() else pin.unlink()


def coupled_anew(service: Service, bed: Dumbbell, wanted: int) -> int:
    """Flows that a loader couples which is started now, with two new ones."""
    service.start_loader()
    service.await_connected("a")
    bed.send(0, 2, 120, "reno")
    return most_coupled(service, wanted)


def remove_package() -> str:
    """Has done what is done before that; what it says."""
    before = Path(__file__).resolve().parents[2] / "packaging/debian/ccc-bpf.prerm"
    environment = {**os.environ, "PATH": f"{TARGET}:{os.environ['PATH']}"}
    command = ["sh", str(before), "remove"]
    return run_command(command, env=environment, check=True, stderr=PIPE, text=True).stderr


def changes(out: Path) -> list[Score]:
    """Owners of connections that send take another algorithm, and ours again."""
    service = Service(out, {"g": {}})
    left_s: list[float] = []
    back_s: list[float] = []
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-changes", senders=1, delay_ms=10)
        stack.callback(bed.end)
        bed.make()
        service.add("a", "netns", bed.sender(0), "g")
        service.await_connected("a")
        receiver = bed.receive(60)
        flows = sum(FLOWS)
        sender = bed.change(0, flows, 60, "reno")
        until("flows are coupled", lambda: coupled(service) == flows)
        held = 0
        for _ in range(CHANGES):
            tell(sender, "reno")
            left_s.append(until("they have left", lambda: service.tenants()["a"]["flows"] == 0))
            held = max(held, slots_in_use())
            time.sleep(0.3)
            tell(sender, "ccc_reno")
            back_s.append(until("they are coupled again", lambda: coupled(service) == flows))
            time.sleep(0.3)
        receiver.terminate()
        ended = json.loads(receiver.communicate()[0])["ended"]
    return [
        at_most(f"{flows} that send change to reno: until the daemon knows", median(left_s), "s", AT_ONCE_S),
        at_most("slots that they hold then", held, "1", 0),
        at_most("they change back: until all are coupled", max(back_s), "s", BACK_WITHIN_S),
        at_most("connections ended by that", len(ended), "1", 0),
    ]


def tell(sender: Popen, line: str) -> None:
    assert sender.stdin
    sender.stdin.write(f"{line}\n".encode())
    sender.stdin.flush()


def counters(service: Service, name: str) -> dict[str, int]:
    return service.show(name)["counters"]


def slots_in_use() -> int:
    return bits("control.in_use")


def slots_parked() -> int:
    return bits("control.idle")


def bits(field: str) -> int:
    """Those set of one for each slot."""
    return sum(bin(int(byte, 16)).count("1") for byte in of_tables(field, SLOTS // 8))


def come_and_go(out: Path) -> list[Score]:
    """Cgroups that are made, become tenants, send, and are removed again."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-cgroups", rate="1gbit", packets=1000, delay_ms=1)
        stack.callback(bed.end)
        bed.make()
        bed.receive(60 + 10 * CGROUPS)
        found = wanted = 0
        # Sockets that linger keep those of the tenants before.
        before = tables()
        for begin in range(0, CGROUPS, AT_A_TIME):
            names = [f"c{number}" for number in range(begin, min(begin + AT_A_TIME, CGROUPS))]
            for name in names:
                service.add(name, "cgroup", cgroups.make(name), "g")
            until("all connected", lambda: all(one["connected"] for one in service.tenants().values()), 60)
            senders = [bed.send(0, 1, 60, "reno", cgroups.path(name)) for name in names[:5]]
            wanted += len(senders)
            found += most_coupled(service, len(senders))
            for sender in senders:
                end(sender)
            for name in names:
                service.remove(name)
            until("all removed", lambda: tables() <= before, 60)
            for name in names:
                cgroups.path(name).rmdir()
    return [Score(f"{CGROUPS} cgroups: flows coupled of {wanted}", found, "1", ">=", wanted)]


def most_coupled(service: Service, wanted: int) -> int:
    """Flows that are coupled at the same time, once so many are or it takes too long."""
    most = 0

    def are_enough() -> bool:
        nonlocal most
        most = max(most, coupled(service))
        return most >= wanted

    with suppress(TimeoutError):
        until("flows are coupled", are_enough)
    return most


def tables() -> set[int]:
    return {one["id"] for one in bpf("map") if one.get("name") == "ccc_table"}


def ours() -> set[tuple[str, int | str]]:
    """Programs and maps with our names, links of programs so attached, and pins."""
    shown = {(kind, one["id"]) for kind in ("prog", "map") for one in bpf(kind) if "ccc" in one.get("name", "")}
    links = {("link", one["id"]) for one in bpf("link") if one["type"] in ("struct_ops", "cgroup")}
    pins = Path("/sys/fs/bpf/ccc")
    return shown | links | ({("pin", str(pin)) for pin in pins.rglob("*")} if pins.exists() else set())
